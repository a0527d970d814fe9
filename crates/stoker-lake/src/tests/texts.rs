//! Full-text search finds what a BM25 that is written here finds, whatever is indexed.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
use futures::TryStreamExt;
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::optimize::OptimizeOptions;
use lance_index::scalar::InvertedIndexParams;
use stoker_text::{Analysis, TextQuery};
use stoker_types::ErrorKind;

use super::data::{TestResult, latest, memory_lake, small, table_name};
use crate::text::index_params;
use crate::{
    ChangeNote, CommitMode, CompactOptions, Error, IndexKind, LakeStore, ROW_ADDR, RowIdSet, ScanRequest, Table,
    TextHits, TextSearch,
};

const WORDS: [&str; 12] =
    ["the", "an", "quick", "quack", "quicker", "brown", "fox", "foxes", "dog", "lazy", "jumps", "state-of-the-art"];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("title", DataType::Utf8, true),
        Field::new("body", DataType::LargeUtf8, true),
    ]))
}

/// The text of a row: words that follow from its number; some rows have none.
fn text(row: usize, salt: usize) -> Option<String> {
    let mut state = (row * 2_654_435_761 + salt * 40_503) as u32 | 1;
    let mut next = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % limit
    };
    let num_words = next(14);
    let words: Vec<&str> = (0..num_words).map(|_| WORDS[next(WORDS.len())]).collect();
    (row % 11 != 3).then(|| words.join(if row.is_multiple_of(2) { " " } else { ", " }))
}

async fn append(lake: &LakeStore, numbers: std::ops::Range<usize>) -> Result<Table, Box<dyn std::error::Error>> {
    let (name, schema) = (table_name("texts"), schema());
    let mut writer = lake.writer(&name, &schema, true, small(50, 1 << 20)).await?;
    let titles: ArrayRef = Arc::new(StringArray::from_iter(numbers.clone().map(|row| text(row, 0))));
    let bodies: ArrayRef = Arc::new(arrow_array::LargeStringArray::from_iter(numbers.clone().map(|row| text(row, 1))));
    let ids = Int64Array::from_iter_values(numbers.map(|row| row as i64));
    writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), titles, bodies])?).await?;
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, writer.finish().await?, None).await?;
    Ok(latest(lake, &name).await?)
}

fn search(columns: &[&str], query: &str, k: usize) -> TextSearch {
    let analysis = Analysis::default();
    TextSearch {
        columns: columns.iter().map(|column| (*column).to_string()).collect(),
        query: Arc::new(TextQuery::parse(query, &analysis).expect("a query")),
        analysis,
        k,
        rows: None,
        use_index: true,
        memory: Arc::new(UnboundedMemoryPool::default()),
    }
}

/// A row: its address, and the words of each column.
type Row = (u64, Vec<Vec<String>>);

async fn rows(table: &Table) -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    let columns = vec!["title".to_string(), "body".to_string()];
    let request = ScanRequest { columns, with_row_addr: true, ..ScanRequest::default() };
    let batches: Vec<RecordBatch> = table.scan(&request).await?.try_collect().await?;
    let split = |text: Option<&str>| -> Vec<String> {
        let words = text.unwrap_or_default().split(|letter: char| !letter.is_alphanumeric());
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let mut rows = Vec::new();
    for batch in &batches {
        let addrs = batch.column_by_name(ROW_ADDR).ok_or("addresses")?;
        let addrs = addrs.as_primitive::<arrow_array::types::UInt64Type>();
        let (titles, bodies) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i64>());
        for (row, (title, body)) in titles.iter().zip(bodies.iter()).enumerate() {
            rows.push((addrs.value(row), vec![split(title), split(body)]));
        }
    }
    Ok(rows)
}

/// Tells whether a text has a word or, with a space, a phrase.
type Has<'a> = &'a dyn Fn(&str) -> bool;

/// A query: its text, which rows match, and which words of a column's text score.
struct Case {
    text: &'static str,
    matches: fn(Has) -> bool,
    scores: fn(Has) -> Vec<&'static str>,
}

/// The queries.
const CASES: [Case; 13] = [
    Case { text: "fox", matches: |has| has("fox"), scores: |_| vec!["fox"] },
    Case { text: "fox dog", matches: |has| has("fox") || has("dog"), scores: |_| vec!["fox", "dog"] },
    Case { text: "+Fox +the", matches: |has| has("fox") && has("the"), scores: |_| vec!["fox", "the"] },
    Case { text: "+fox +an", matches: |has| has("fox") && has("an"), scores: |_| vec!["fox", "an"] },
    Case { text: "+fox dog", matches: |has| has("fox"), scores: |_| vec!["fox", "dog"] },
    Case { text: "fox -dog", matches: |has| has("fox") && !has("dog"), scores: |_| vec!["fox"] },
    Case { text: "dog fox fox", matches: |has| has("fox") || has("dog"), scores: |_| vec!["dog", "fox", "fox"] },
    Case { text: "\"quick fox\"", matches: |has| has("quick fox"), scores: phrase },
    Case { text: "+\"quick fox\" -lazy", matches: |has| has("quick fox") && !has("lazy"), scores: phrase },
    Case { text: "fox -\"the fox\"", matches: |has| has("fox") && !has("the fox"), scores: |_| vec!["fox"] },
    Case {
        text: "state-of-the-art",
        matches: |has| has("state of the art"),
        scores: |has| if has("state of the art") { vec!["state", "of", "the", "art"] } else { Vec::new() },
    },
    Case {
        text: "quick~1 dog",
        matches: |has| has("quick") || has("quack") || has("dog"),
        scores: |_| vec!["quack", "quick", "dog"],
    },
    Case {
        text: "-quick~2 +fox",
        matches: |has| has("fox") && !has("quick") && !has("quack") && !has("quicker"),
        scores: |_| vec!["fox"],
    },
];

fn phrase(has: Has) -> Vec<&'static str> {
    if has("quick fox") { vec!["quick", "fox"] } else { Vec::new() }
}

fn has(words: &[String], sought: &str) -> bool {
    let sought: Vec<&str> = sought.split(' ').collect();
    words.windows(sought.len()).any(|window| window.iter().eq(sought.iter()))
}

/// The rows that match, best first, with their scores.
fn expected(case: &Case, rows: &[Row], columns: &[usize]) -> Vec<(u64, f64)> {
    let mut found = Vec::new();
    for (addr, texts) in rows {
        let any_has = |sought: &str| columns.iter().any(|column| has(&texts[*column], sought));
        if !(case.matches)(&any_has) {
            continue;
        }
        let mut sum = 0.0;
        for column in columns {
            let with_words: Vec<&Vec<String>> =
                rows.iter().map(|(_, texts)| &texts[*column]).filter(|words| !words.is_empty()).collect();
            let num_words: usize = with_words.iter().map(|words| words.len()).sum();
            let mean = num_words as f64 / with_words.len() as f64;
            let words = &texts[*column];
            for word in (case.scores)(&|sought: &str| has(words, sought)) {
                let count = words.iter().filter(|other| *other == word).count() as f64;
                let with = with_words.iter().filter(|words| has(words, word)).count() as f64;
                let idf = ((with_words.len() as f64 - with + 0.5) / (with + 0.5) + 1.0).ln();
                sum += idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * words.len() as f64 / mean));
            }
        }
        found.push((*addr, sum));
    }
    found.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    found
}

/// Compares all queries with what is expected, and returns what they found.
async fn check(table: &Table, what: &str) -> Result<Vec<TextHits>, Box<dyn std::error::Error>> {
    let rows = rows(table).await?;
    let allowed: Vec<u64> = rows.iter().map(|(addr, _)| *addr).filter(|addr| addr % 3 != 0).collect();
    let mut all = Vec::new();
    for case in &CASES {
        for (names, columns) in [(vec!["title"], vec![0]), (vec!["body"], vec![1]), (vec!["title", "body"], vec![0, 1])]
        {
            for (k, filtered) in [(1, false), (7, false), (1_000, false), (7, true), (1_000, true)] {
                let what = format!("{what}: {} in {names:?}, k {k}, filtered {filtered}", case.text);
                let mut expected = expected(case, &rows, &columns);
                let mut search = search(&names, case.text, k);
                if filtered {
                    let mut set = RowIdSet::default();
                    set.insert_all(&UInt64Array::from(allowed.clone()));
                    search.rows = Some(Arc::new(set));
                    expected.retain(|(addr, _)| allowed.contains(addr));
                }
                expected.truncate(k);
                let hits = table.search_text(&search).await?;
                let expected_scores: Vec<f64> = expected.iter().map(|(_, score)| *score).collect();
                assert_eq!(hits.scores.len(), expected.len(), "{what}");
                for (score, expected) in hits.scores.iter().zip(&expected_scores) {
                    assert!((f64::from(*score) - expected).abs() < 1e-5, "{what}: {score} {expected}");
                }
                // Rows whose scores differ in the 64 bits of the test only may change places.
                let close = expected_scores.windows(2).any(|pair| pair[0] != pair[1] && pair[0] - pair[1] < 1e-6);
                if !close {
                    let expected: Vec<u64> = expected.iter().map(|(addr, _)| *addr).collect();
                    assert_eq!(hits.row_addrs, expected, "{what}");
                }
                search.use_index = false;
                assert_eq!(table.search_text(&search).await?, hits, "{what}: without an index");
                all.push(hits);
            }
        }
    }
    assert!(all.iter().filter(|hits| !hits.scores.is_empty()).count() > all.len() / 2, "{what}");
    Ok(all)
}

async fn delete(lake: &LakeStore, addrs: &[u64]) -> Result<Table, Box<dyn std::error::Error>> {
    let note = |_: u64| ChangeNote { predicate: "rows of a test".into(), properties: HashMap::new() };
    lake.delete_rows(&table_name("texts"), addrs, "deleting rows", &note).await?;
    Ok(latest(lake, &table_name("texts")).await?)
}

#[tokio::test]
async fn rows_order_and_scores_do_not_depend_on_indexes() -> TestResult {
    let lake = memory_lake().await;
    let table = append(&lake, 0..160).await?;
    let without = check(&table, "no index").await?;
    table.create_index("title", IndexKind::Inverted).await?;
    let table = latest(&lake, table.name()).await?;
    assert_eq!(check(&table, "one index").await?, without);
    table.create_index("body", IndexKind::Inverted).await?;
    let table = latest(&lake, table.name()).await?;
    assert_eq!(check(&table, "two indexes").await?, without);

    check(&append(&lake, 160..230).await?, "appended").await?;
    // Rows of an indexed fragment, rows of one that is not, and a whole indexed fragment.
    let mut gone: Vec<u64> = (5..25).chain((3 << 32)..(3 << 32) + 5).chain((4 << 32)..(4 << 32) + 9).collect();
    check(&delete(&lake, &gone).await?, "deleted").await?;
    gone = ((1_u64 << 32)..(1 << 32) + 50).collect();
    let table = delete(&lake, &gone).await?;
    check(&table, "a deleted fragment").await?;
    let mut dataset = table.dataset().as_ref().clone();
    dataset.optimize_indices(&OptimizeOptions::append()).await?;
    let table = latest(&lake, table.name()).await?;
    check(&table, "a second segment").await?;
    let mut dataset = table.dataset().as_ref().clone();
    dataset.optimize_indices(&OptimizeOptions::merge(10)).await?;
    check(&latest(&lake, table.name()).await?, "merged segments").await?;
    Ok(())
}

#[tokio::test]
async fn updated_texts_are_found_and_their_old_ones_are_not() -> TestResult {
    let lake = memory_lake().await;
    let table = append(&lake, 0..160).await?;
    let params = index_params(&Analysis::default()).ok_or("an index has these words")?;
    let mut dataset = table.dataset().as_ref().clone();
    dataset.create_index(&["title"], IndexType::Inverted, None, &params, true).await?;
    let some: Vec<u64> = (3..30).chain((1 << 32)..(1 << 32) + 7).collect();
    let whole_fragment: Vec<u64> = ((2_u64 << 32)..(2 << 32) + 50).collect();
    for (addrs, salt) in [(some, 2), (whole_fragment, 3)] {
        let table = latest(&lake, table.name()).await?;
        let titles: ArrayRef = Arc::new(StringArray::from_iter((0..addrs.len()).map(|row| text(row, salt))));
        let mut change = lake.change(&table, small(50, 1 << 20)).await?;
        change.update(&addrs, &RecordBatch::try_from_iter_with_nullable([("title", titles, true)])?)?;
        change.commit(None, &ChangeNote::default()).await?;
        check(&latest(&lake, table.name()).await?, "updated").await?;
    }
    let mut dataset = latest(&lake, table.name()).await?.dataset().as_ref().clone();
    dataset.optimize_indices(&OptimizeOptions::merge(10)).await?;
    check(&latest(&lake, table.name()).await?, "updated, and indexed again").await?;
    let done = lake.compact(table.name(), &CompactOptions::default(), &ChangeNote::default(), &|_| {}).await?;
    assert!(done.num_fragments > 1 && done.indexes == ["title_idx"], "{done:?}");
    check(&latest(&lake, table.name()).await?, "compacted").await?;
    Ok(())
}

#[tokio::test]
async fn indexes_of_other_words_are_not_used() -> TestResult {
    let lake = memory_lake().await;
    let table = append(&lake, 0..120).await?;
    let without = check(&table, "no index").await?;
    // Lance's default index has stems, and no stop words and no positions.
    let mut dataset = table.dataset().as_ref().clone();
    let params = InvertedIndexParams::default();
    dataset.create_index(&["title"], IndexType::Inverted, None, &params, true).await?;
    assert_eq!(check(&latest(&lake, table.name()).await?, "Lance's index").await?, without);
    // Another one has the words, but no positions, and blocks in which lengths are rounded.
    for params in [
        InvertedIndexParams::default().stem(false).remove_stop_words(false),
        InvertedIndexParams::default().stem(false).remove_stop_words(false).block_size(256)?,
    ] {
        let mut dataset = latest(&lake, table.name()).await?.dataset().as_ref().clone();
        dataset.create_index(&["title"], IndexType::Inverted, None, &params, true).await?;
        assert_eq!(check(&latest(&lake, table.name()).await?, "no positions").await?, without);
    }
    // A search that asks for the words of Lance's default index.
    let analysis = Analysis::default().with_stems("english").and_then(Analysis::without_stop_words).ok_or("English")?;
    let mut search = search(&["title"], "fox", 1_000);
    (search.query, search.analysis) = (Arc::new(TextQuery::parse("+foxes the", &analysis)?), analysis);
    let stems = table.search_text(&search).await?;
    assert_eq!(stems, latest(&lake, table.name()).await?.search_text(&search).await?);
    assert!(stems.scores.len() > 20);
    Ok(())
}

#[tokio::test]
async fn many_rows_with_equal_texts_come_by_address() -> TestResult {
    let lake = memory_lake().await;
    let (name, schema) = (table_name("texts"), Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, false)])));
    let mut writer = lake.writer(&name, &schema, true, small(1_000, 1 << 20)).await?;
    let texts = StringArray::from_iter_values((0..3_000).map(|row| if row % 3 == 0 { "a fox" } else { "a dog" }));
    writer.write(&RecordBatch::try_new(schema.clone(), vec![Arc::new(texts)])?).await?;
    lake.commit(&name, &schema, CommitMode::CreateOrAppend, writer.finish().await?, None).await?;
    let table = latest(&lake, &name).await?;
    table.create_index("t", IndexKind::Inverted).await?;
    let table = latest(&lake, &name).await?;
    // All texts have the word `a`.
    for k in [1, 10, 500] {
        let hits = table.search_text(&search(&["t"], "a", k)).await?;
        let expected: Vec<u64> = (0..k as u64).map(|row| ((row / 1_000) << 32) | (row % 1_000)).collect();
        assert_eq!(hits.row_addrs, expected, "{k}");
    }
    for k in [1, 10, 500, 5_000] {
        let hits = table.search_text(&search(&["t"], "fox", k)).await?;
        let rows = (0..3_000_u64).filter(|row| row % 3 == 0).take(k);
        let expected: Vec<u64> = rows.map(|row| ((row / 1_000) << 32) | (row % 1_000)).collect();
        assert_eq!(hits.row_addrs, expected, "{k}");
    }
    Ok(())
}

#[tokio::test]
async fn searches_that_cannot_be_answered_say_why() -> TestResult {
    let lake = memory_lake().await;
    let table = append(&lake, 0..60).await?;
    for (column, part) in [("id", "not text"), ("nope", "no column")] {
        let error = table.search_text(&search(&[column], "fox", 3)).await.expect_err(column);
        let datafusion::error::DataFusionError::External(error) = error else { panic!("{error}") };
        let error = error.downcast::<Error>().map_err(|error| error.to_string())?;
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.to_string().contains(part), "{error}");
    }
    let few_bytes = TextSearch { memory: Arc::new(GreedyMemoryPool::new(64)), ..search(&["title"], "fox", 3) };
    let error = table.search_text(&few_bytes).await.expect_err("no memory");
    assert!(matches!(error.find_root(), datafusion::error::DataFusionError::ResourcesExhausted(_)), "{error}");
    Ok(())
}
