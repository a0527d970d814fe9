//! `CREATE INDEX`, `DROP INDEX` and `OPTIMIZE INDEX`.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use stoker_types::{ErrorKind, ParamValue};

use super::fixture::Fixture;
use crate::execute;

#[tokio::test]
async fn every_kind_is_built_with_its_defaults() {
    let fixture = Fixture::new(9_000).await;
    for (sql, name, kind) in [
        ("CREATE INDEX ON samples (id)", "id_idx", "BTree"),
        ("CREATE INDEX by_id ON public.samples USING bitmap (id)", "by_id", "Bitmap"),
        ("CREATE INDEX ON samples USING label_list (tags)", "tags_idx", "LabelList"),
        ("CREATE INDEX ON samples USING ngram (title)", "title_idx", "NGram"),
        ("CREATE INDEX ON lake.public.samples USING inverted (title)", "title_idx_2", "Inverted"),
    ] {
        let outcome = fixture.done(sql).await;
        assert_eq!(outcome.statement, "CREATE INDEX", "{sql}");
        assert_eq!((outcome.table.as_deref(), outcome.num_rows), (Some("samples"), Some(9_000)), "{sql}");
        let indexes = fixture.table().await.indexes().await.expect("indexes");
        let found = indexes.iter().find(|index| index.name == name).unwrap_or_else(|| panic!("{sql}: {indexes:?}"));
        assert_eq!((found.kind.as_str(), found.num_rows_not_covered, found.recall), (kind, 0, None), "{sql}");
        assert_eq!(outcome.version, Some(fixture.table().await.version()));
    }
    // One partition for 4,096 rows, and the largest divisor of the dimension up to 16 sub-vectors.
    for (sql, part) in [
        ("CREATE INDEX v ON samples USING ivf_flat (emb)", "in 2 partitions;"),
        ("CREATE OR REPLACE INDEX v ON samples USING ivf_pq (emb)", "in 2 partitions, with 8 sub-vectors;"),
        (
            "CREATE OR REPLACE INDEX v ON samples USING ivf_hnsw_sq (emb)",
            "in 1 partitions, with m 20 and ef_construction 150;",
        ),
    ] {
        let outcome = fixture.done(sql).await;
        assert!(outcome.message.contains(part), "{outcome}");
        let indexes = fixture.table().await.indexes().await.expect("indexes");
        let recall = indexes.iter().find(|index| index.name == "v").and_then(|index| index.recall).expect("a recall");
        assert!((0.8..=1.0).contains(&recall), "{sql}: {recall}");
        assert!(outcome.message.contains(&format!("{:.1} %", recall * 100.0)), "{outcome}");
    }
    let phases = fixture.phases();
    for phase in ["learning the partitions", "estimating the recall"] {
        assert!(phases.iter().any(|found| found == phase), "{phases:?}");
    }
}

#[tokio::test]
async fn names_are_kept_replaced_or_refused() {
    let fixture = Fixture::new(100).await;
    let version = fixture.done("CREATE INDEX a ON samples USING ivf_flat (emb) WITH (metric = 'cosine')").await.version;
    fixture
        .refuses(
            "CREATE INDEX a ON samples (id)",
            ErrorKind::AlreadyExists,
            &["index a of table samples already exists", "CREATE OR REPLACE INDEX"],
        )
        .await;
    let kept = fixture.done("CREATE INDEX IF NOT EXISTS a ON samples USING ivf_flat (emb)").await;
    assert_eq!((kept.version, kept.num_rows), (version, None));
    assert_eq!(kept.message, "index a exists already");
    let replaced = fixture.done("CREATE OR REPLACE INDEX a ON samples USING ivf_flat (emb)").await;
    assert!(replaced.version > version, "{replaced}");
    fixture
        .refuses(
            "CREATE OR REPLACE INDEX a ON samples (id)",
            ErrorKind::InvalidRequest,
            &["it is an index of another column"],
        )
        .await;
    let indexes = fixture.table().await.indexes().await.expect("indexes");
    assert_eq!(indexes.len(), 1);
    assert!(indexes[0].parameters.to_lowercase().contains("l2"), "{indexes:?}");
}

#[tokio::test]
async fn dropped_indexes_are_gone_from_the_next_version() {
    let fixture = Fixture::new(100).await;
    fixture.done("CREATE INDEX a ON samples (id)").await;
    let before = fixture.table().await;
    let dropped = fixture.done("DROP INDEX a ON samples").await;
    assert_eq!((dropped.statement.as_str(), dropped.version), ("DROP INDEX", Some(before.version() + 1)));
    assert_eq!(fixture.table().await.indexes().await.expect("none").len(), 0);
    assert_eq!(before.indexes().await.expect("the index").len(), 1);
    fixture.refuses("DROP INDEX a ON samples", ErrorKind::NotFound, &["index a of table samples", "no indexes"]).await;
    let unchanged = fixture.done("DROP INDEX IF EXISTS a ON samples").await;
    assert_eq!((unchanged.message.as_str(), unchanged.version), ("there is no index a", dropped.version));
    fixture.done("CREATE INDEX b ON samples (id)").await;
    fixture.refuses("DROP INDEX a ON samples", ErrorKind::NotFound, &["indexes: b"]).await;
}

#[tokio::test]
async fn optimised_indexes_cover_new_rows() {
    let fixture = Fixture::new(5_000).await;
    fixture.done("CREATE INDEX v ON samples USING ivf_flat (emb)").await;
    fixture.done("CREATE INDEX a ON samples (id)").await;
    let unchanged = fixture.done("OPTIMIZE INDEX ON samples").await;
    assert_eq!((unchanged.num_rows, unchanged.version), (Some(0), Some(fixture.table().await.version())));
    assert_eq!(unchanged.message, "nothing to do: all indexes cover all rows");
    fixture.append(5_000..6_000).await;
    let one = fixture.done("OPTIMIZE INDEX a ON samples").await;
    assert_eq!((one.num_rows, one.message.as_str()), (Some(1_000), "index a covers 1000 more rows"));
    let not_covered = |name: &'static str| {
        let table = fixture.table();
        async move {
            let indexes = table.await.indexes().await.expect("indexes");
            let index = indexes.into_iter().find(|index| index.name == name).expect("the index");
            (index.num_rows_not_covered, index.recall.is_some())
        }
    };
    assert_eq!((not_covered("a").await, not_covered("v").await.0), ((0, false), 1_000));
    let rest = fixture.done("OPTIMIZE INDEX ON samples").await;
    assert!(rest.message.starts_with("index v covers 1000 more rows; searches by v find "), "{rest}");
    assert_eq!(not_covered("v").await, (0, true));
    fixture.refuses("OPTIMIZE INDEX b ON samples", ErrorKind::NotFound, &["index b of table samples", "a, v"]).await;
    let sql = "SELECT count(*) AS n FROM samples WHERE id >= 4990";
    let counted = fixture.rows(sql).await;
    assert_eq!(counted[0].column(0).as_primitive::<Int64Type>().value(0), 1_010);
}

#[tokio::test]
async fn errors_name_what_is_possible() {
    let fixture = Fixture::new(300).await;
    let version = fixture.table().await.version();
    for (rest, parts) in [
        ("USING hnsw (emb)", vec!["kind \"hnsw\" is unknown", "ivf_flat", "ivf_hnsw_sq", "ngram"]),
        ("USING ivf_flat (emb) WITH (metric = 'manhattan')", vec!["metric \"manhattan\" is unknown", "cosine"]),
        ("USING ivf_flat (emb) WITH (metric = 1)", vec!["metric is 1; it must be a text"]),
        ("USING ivf_flat (emb) WITH (num_sub_vectors = 4)", vec!["option \"num_sub_vectors\" is unknown", "metric"]),
        ("USING btree (id) WITH (a = 1)", vec!["option \"a\" is unknown", "index kind btree has no options"]),
        (
            "USING ivf_pq (emb) WITH (num_partitions = 0)",
            vec!["num_partitions is 0; it must be a whole number from 1 to 1048576"],
        ),
        ("USING ivf_pq (emb) WITH (num_partitions = 1.5)", vec!["num_partitions is 1.5"]),
        ("USING ivf_pq (emb) WITH (num_sub_vectors = -2)", vec!["num_sub_vectors is -2", "from 1 to 65536"]),
        (
            "USING ivf_pq (emb) WITH (num_sub_vectors = 3)",
            vec!["column emb of samples@1", "num_sub_vectors is 3", "8 elements of a vector: 1, 2, 4, 8"],
        ),
        ("USING ivf_hnsw_sq (emb) WITH (m = 1000)", vec!["m is 1000", "from 4 to 128"]),
        ("USING ivf_flat (id)", vec!["column id of samples@1", "its type is Int64", "vectors"]),
        ("USING btree (emb)", vec!["column emb of samples@1", "no lists"]),
        ("USING label_list (title)", vec!["column title of samples@1", "for lists"]),
        ("USING ngram (id)", vec!["column id of samples@1", "for texts"]),
        ("USING inverted (emb)", vec!["column emb of samples@1", "for texts"]),
        ("USING inverted (title) WITH (language = 'klingon')", vec!["language \"klingon\"", "english"]),
        ("USING inverted (title) WITH (stop_words = 3)", vec!["stop_words is 3", "TRUE or FALSE"]),
        ("(nothing)", vec!["column \"nothing\" of samples@1", "id, title, tags, emb"]),
    ] {
        fixture.refuses(&format!("CREATE INDEX ON samples {rest}"), ErrorKind::InvalidRequest, &parts).await;
    }
    fixture.refuses("CREATE INDEX ON nothing (id)", ErrorKind::NotFound, &["table nothing"]).await;
    fixture.refuses("CREATE INDEX ON other.samples (id)", ErrorKind::NotFound, &["schema public"]).await;
    fixture.refuses("CREATE INDEX ON \"a/b\" (id)", ErrorKind::InvalidRequest, &["table name \"a/b\""]).await;
    fixture.refuses("CREATE INDEX \"\" ON samples (id)", ErrorKind::InvalidRequest, &["name of the index"]).await;
    fixture.refuses("SELECT 1", ErrorKind::InvalidRequest, &["changes nothing", "lake.sql"]).await;
    let params = [ParamValue::Int(1)];
    let error = execute(&fixture.engine, "DROP INDEX a ON samples", &params, &|_| {}).await.expect_err("a parameter");
    assert_eq!(error.to_string(), "parameter $1 is not used: DROP INDEX has no parameters");
    assert_eq!(fixture.table().await.version(), version);
}

#[tokio::test]
async fn languages_of_full_text_indexes_are_those_of_searches() {
    let fixture = Fixture::new(50).await;
    fixture.done("CREATE INDEX plain ON samples USING inverted (title)").await;
    fixture
        .done("CREATE INDEX stems ON samples USING inverted (title) WITH (language = english, stop_words = false)")
        .await;
    let indexes = fixture.table().await.indexes().await.expect("indexes");
    assert_eq!(indexes.len(), 2);
    assert_ne!(indexes[0].parameters, indexes[1].parameters);
    for (options, expected) in [("", 0), (", language => 'english', stop_words => false", 50)] {
        let found =
            fixture.rows(&format!("SELECT id FROM text_search(samples, title, 'titles', k => 100{options})")).await;
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), expected, "{options}");
    }
}
