//! Statements that change rows, columns, tables, views, tags and old versions.

use std::sync::atomic::{AtomicBool, Ordering};

use arrow_cast::display::{ArrayFormatter, FormatOptions};
use stoker_clock::Environment;
use stoker_columns::TensorType;
use stoker_lake::{DenseProbe, Table};
use stoker_types::{ErrorKind, ParamValue, SnapshotRef, StatementOutcome, StatementProgress, TableName};
use tokio::runtime::Handle;

use super::fixture::Fixture;
use crate::{Result, execute, execute_many};

/// Returns the values of a query as text, row by row, with spaces between them.
pub async fn shown(fixture: &Fixture, sql: &str) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in fixture.rows(sql).await {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).expect("a type")).collect();
        let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" ");
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows
}

pub async fn run_with(fixture: &Fixture, sql: &str, params: &[ParamValue]) -> Result<StatementOutcome> {
    execute(&fixture.engine, sql, params, &|_| {}).await
}

pub async fn table(fixture: &Fixture, name: &str) -> Table {
    let name = TableName::try_new(name).expect("a name");
    fixture.engine.lake().table(&name, &SnapshotRef::Latest).await.expect("the table")
}

/// A lake with the tables `t` (`id`, `x`, `name`) and `s` (`id`, `y`).
async fn lake() -> Fixture {
    let fixture = Fixture::new(3).await;
    fixture.done("CREATE TABLE t (id BIGINT NOT NULL, x INT, name TEXT)").await;
    let inserted = fixture.done("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, NULL, 'c'), (4, 40, NULL)").await;
    assert_eq!((inserted.statement.as_str(), inserted.num_rows, inserted.version), ("INSERT", Some(4), Some(2)));
    fixture.done("CREATE TABLE s AS SELECT id, id * 100 AS y FROM t WHERE id IN (2, 4)").await;
    fixture
}

const ALL: &str = "SELECT * FROM t ORDER BY id";

#[tokio::test]
async fn rows_are_inserted_with_casts() {
    let lake = lake().await;
    assert_eq!(shown(&lake, ALL).await, ["1 10 a", "2 20 b", "3 NULL c", "4 40 NULL"]);
    lake.done("INSERT INTO t (name, id) SELECT upper(name), id + 10 FROM t WHERE x > 10").await;
    lake.done("INSERT INTO t VALUES ('5', '50', 5.5)").await;
    assert_eq!(
        shown(&lake, "SELECT * FROM t WHERE id > 4 ORDER BY id").await,
        ["5 50 5.5", "12 NULL B", "14 NULL NULL"]
    );
    let params = [ParamValue::Int(6), ParamValue::Null, ParamValue::Text("f".into())];
    run_with(&lake, "INSERT INTO t VALUES ($1, $2, $3)", &params).await.expect("parameters");
    run_with(
        &lake,
        "INSERT INTO t (id, name) VALUES (?, lower(?))",
        &[ParamValue::Int(7), ParamValue::Text("G".into())],
    )
    .await
    .expect("parameters in expressions");
    assert_eq!(shown(&lake, "SELECT * FROM t WHERE id IN (6, 7) ORDER BY id").await, ["6 NULL f", "7 NULL g"]);
    let invalid = ErrorKind::InvalidRequest;
    for (sql, parts) in [
        ("INSERT INTO t VALUES (1, 1, 'a'), (2, 3000000000, 'b')", vec!["column x", "row 2", "3000000000"]),
        ("INSERT INTO t VALUES (8, 'eight', 'h')", vec!["column x", "row 1", "'eight'"]),
        ("INSERT INTO t VALUES (NULL, 1, 'a')", vec!["column id", "row 1", "NULL"]),
        ("INSERT INTO t (x) VALUES (1)", vec!["column id"]),
        ("INSERT INTO t VALUES (1, 2)", vec!["there are 2 values", "id, x, name"]),
        ("INSERT INTO t (id, nope) VALUES (1, 2)", vec!["no column nope", "id, x, name"]),
        ("INSERT INTO t SELECT nope FROM s", vec!["nope"]),
        ("INSERT INTO t VALUES ($1, 1, 'a')", vec!["$1"]),
    ] {
        lake.refuses(sql, invalid, &parts).await;
    }
    lake.refuses("INSERT INTO nothing VALUES (1)", ErrorKind::NotFound, &["table nothing"]).await;
    assert_eq!(shown(&lake, "SELECT count(*) FROM t").await, ["9"], "refused statements change nothing");
}

#[tokio::test]
async fn an_insert_of_many_rows_of_parameters_is_one_version() {
    let lake = lake().await;
    let rows: Vec<Vec<ParamValue>> = (100..1_400).map(|id| vec![ParamValue::Int(id), ParamValue::Float(0.5)]).collect();
    let environment = Environment::default();
    let many = async |sql: &str| execute_many(&lake.engine, &environment, sql, &rows, &|_| {}).await;
    let before = table(&lake, "t").await.version();
    let outcome = many("INSERT INTO t (id, name) VALUES (?, ?)").await.expect("rows");
    assert_eq!((outcome.num_rows, outcome.version), (Some(1_300), Some(before + 1)));
    let updated = execute_many(
        &lake.engine,
        &environment,
        "UPDATE t SET x = ? WHERE id = ?",
        &[vec![ParamValue::Int(1), ParamValue::Int(100)], vec![ParamValue::Int(2), ParamValue::Int(101)]],
        &|_| {},
    )
    .await
    .expect("two statements");
    assert_eq!((updated.num_rows, updated.version), (Some(2), Some(before + 3)));
    assert_eq!(shown(&lake, "SELECT x, name FROM t WHERE id IN (100, 101) ORDER BY id").await, ["1 0.5", "2 0.5"]);
    assert_eq!(updated.message, "executed for 2 rows of parameters");
    let rows =
        [vec![ParamValue::Int(3), ParamValue::Int(100)], vec![ParamValue::Text("a".into()), ParamValue::Int(101)]];
    let stopped = execute_many(&lake.engine, &environment, "UPDATE t SET x = ? WHERE id = ?", &rows, &|_| {}).await;
    let error = stopped.expect_err("a text for a number");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().starts_with("row 2 of the parameters: "), "{error}");
    assert_eq!(shown(&lake, "SELECT x FROM t WHERE id IN (100, 101) ORDER BY id").await, ["3", "2"]);
    let error = many("INSERT INTO t (id, x) VALUES (?, ?), (?, 1)").await.expect_err("unknown parameter").to_string();
    assert!(error.contains("$3"), "{error}");
}

#[tokio::test]
async fn rows_are_updated() {
    let lake = lake().await;
    let updated = lake.done("UPDATE t SET x = x + id, name = coalesce(name, 'none') WHERE id >= 2").await;
    assert_eq!((updated.statement.as_str(), updated.num_rows), ("UPDATE", Some(3)));
    assert_eq!(shown(&lake, ALL).await, ["1 10 a", "2 22 b", "3 NULL c", "4 44 none"]);
    lake.done("UPDATE t AS u SET x = s.y FROM s WHERE s.id = u.id AND u.x < 40").await;
    lake.done("UPDATE t SET name = (SELECT max(y) FROM s) WHERE id = 1").await;
    lake.done("UPDATE t SET x = u.x FROM (SELECT 1 AS id, unnest([10]) AS x) u WHERE u.id = t.id").await;
    lake.done("WITH q AS (SELECT 3 AS id) UPDATE t SET x = 7 FROM q WHERE q.id = t.id").await;
    assert_eq!(shown(&lake, ALL).await, ["1 10 400", "2 200 b", "3 7 c", "4 44 none"]);
    let nothing = lake.done("UPDATE t SET x = 0 WHERE id > 100").await;
    assert_eq!((nothing.num_rows, nothing.version), (Some(0), Some(table(&lake, "t").await.version())));
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("UPDATE t SET x = s.y FROM s", invalid, &["more than one source row"]).await;
    lake.refuses("UPDATE t SET x = 3000000000 WHERE id = 2", invalid, &["column x", "row_id", "3000000000"]).await;
    lake.refuses("UPDATE t SET id = NULL", invalid, &["column id", "NULL"]).await;
    lake.refuses("UPDATE t SET nope = 1", invalid, &["no column nope", "id, x, name"]).await;
    lake.refuses("UPDATE t SET x = nope", invalid, &["nope"]).await;
    for value in ["unnest([id, 1])", "1 + unnest(CASE WHEN id = 1 THEN [] ELSE [id] END)"] {
        lake.refuses(&format!("UPDATE t SET x = {value}"), invalid, &["unnest in the values of UPDATE"]).await;
        let merge = format!("MERGE INTO t USING s ON s.id = t.id WHEN MATCHED THEN UPDATE SET x = {value}");
        lake.refuses(&merge.replace("[id", "[s.id").replace("id = 1", "s.id = 1"), invalid, &["unnest"]).await;
    }
    lake.refuses("UPDATE t SET x = y FROM s AT (VERSION => 9) WHERE s.id = t.id", ErrorKind::NotFound, &["version 9"])
        .await;
    assert_eq!(shown(&lake, ALL).await, ["1 10 400", "2 200 b", "3 7 c", "4 44 none"]);
}

#[tokio::test]
async fn rows_are_deleted() {
    let lake = lake().await;
    // DataFusion's own DELETE removes every row here.
    let deleted = lake.done("DELETE FROM t WHERE id IN (SELECT id FROM s WHERE y > 200)").await;
    assert_eq!((deleted.statement.as_str(), deleted.num_rows), ("DELETE", Some(1)));
    assert_eq!(shown(&lake, ALL).await, ["1 10 a", "2 20 b", "3 NULL c"]);
    lake.done("DELETE FROM t USING s WHERE t.id = s.id").await;
    lake.done("DELETE FROM t x WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.id > x.id + 2)").await;
    assert_eq!(shown(&lake, ALL).await, ["1 10 a"]);
    assert_eq!(shown(&lake, "SELECT count(*) FROM t AT (VERSION => 2)").await, ["4"], "older versions keep the rows");
    assert_eq!(lake.done("DELETE FROM t").await.num_rows, Some(1));
    assert_eq!(lake.done("TRUNCATE TABLE s").await.num_rows, Some(2));
    assert_eq!(shown(&lake, "SELECT count(*) FROM t, s").await, ["0"]);
    lake.refuses("DELETE FROM t AT (VERSION => 2)", ErrorKind::InvalidRequest, &["writes go to the newest version"])
        .await;
}

#[tokio::test]
async fn rows_are_merged() {
    let lake = lake().await;
    lake.done("INSERT INTO s VALUES (9, 900), (8, 0)").await;
    let merged = lake
        .done(
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND t.name IS NULL THEN DELETE \
             WHEN MATCHED THEN UPDATE SET x = 1000 / s.y, name = 'merged' \
             WHEN NOT MATCHED AND s.y > 0 THEN INSERT (id, x) VALUES (s.id, s.y)",
        )
        .await;
    assert_eq!((merged.statement.as_str(), merged.num_rows), ("MERGE", Some(3)));
    assert_eq!(merged.message, "1 row updated, 1 deleted, 1 inserted");
    assert_eq!(shown(&lake, ALL).await, ["1 10 a", "2 5 merged", "3 NULL c", "9 900 NULL"]);
    // The clauses update different columns.
    lake.done(
        "MERGE INTO t x USING (VALUES (1, 'one'), (2, 'two')) AS v (id, word) ON x.id = v.id WHEN MATCHED AND x.x > 5 \
               THEN UPDATE SET name = v.word WHEN MATCHED THEN UPDATE SET x = -x.x",
    )
    .await;
    assert_eq!(shown(&lake, ALL).await, ["1 10 one", "2 -5 merged", "3 NULL c", "9 900 NULL"]);
    let invalid = ErrorKind::InvalidRequest;
    let twice = "MERGE INTO t USING (VALUES (1), (1)) AS v (id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET x = 0";
    lake.refuses(twice, invalid, &["more than one source row"]).await;
    let values = "MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id)";
    lake.refuses(values, invalid, &["INSERT has 1 values", "3 columns"]).await;
    let random = "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND random() < 0.5 THEN DELETE";
    lake.refuses(random, invalid, &["function random in MERGE"]).await;
    let zero = "MERGE INTO t USING s ON t.id + 1 = s.id - 1 WHEN MATCHED THEN UPDATE SET x = 1 / (s.y - 900)";
    assert_eq!(lake.done(zero).await.num_rows, Some(1), "only the rows that match are computed");
}

#[tokio::test]
async fn tensors_keep_their_files_and_checksums() {
    let lake = lake().await;
    lake.done("CREATE TABLE images (id BIGINT, image UINT8[1, 40, 40], emb FLOAT[3])").await;
    let pixels = |value: u8| ParamValue::Vector(vec![f64::from(value); 1_600]);
    let insert = "INSERT INTO images VALUES ($1, $2, $3)";
    for id in [1, 3, 2, 4_u8] {
        let params = [ParamValue::Int(i64::from(id)), pixels(id), ParamValue::Vector(vec![f64::from(id), 0.5, 1.0])];
        run_with(&lake, insert, &params).await.expect("a tensor");
    }
    let images = table(&lake, "images").await;
    let schema = images.schema();
    let tensor = TensorType::of(schema.field_with_name("image").expect("a column")).expect("a tensor");
    assert_eq!(tensor.shape, [1, 40, 40]);
    let is_dense =
        async |name: &str| matches!(table(&lake, name).await.dense_column("image").await, Ok(DenseProbe::Dense(_)));
    assert!(is_dense("images").await);
    lake.done("UPDATE images SET id = id + 100 WHERE id = 2").await;
    run_with(&lake, "UPDATE images SET image = $1 WHERE id = 3", &[pixels(9)]).await.expect("new values");
    lake.done("UPDATE images AS i SET image = o.image FROM images AS o WHERE i.id = 1 AND o.id = 4").await;
    assert!(is_dense("images").await);
    let means = "SELECT id, tensor_mean(image), emb FROM images ORDER BY id";
    let expected =
        ["1 4.0 [1.0, 0.5, 1.0]", "3 9.0 [3.0, 0.5, 1.0]", "4 4.0 [4.0, 0.5, 1.0]", "102 2.0 [2.0, 0.5, 1.0]"];
    assert_eq!(shown(&lake, means).await, expected);
    lake.done("CREATE TABLE copied AS SELECT image, id AS label FROM images WHERE id < 100").await;
    assert_eq!(table(&lake, "copied").await.schema().field(0), schema.field(1), "the column is a tensor");
    assert!(is_dense("copied").await);
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("INSERT INTO images VALUES (1, [[1, 2]], [1, 2, 3])", invalid, &["column image", "row 1"]).await;
    lake.refuses("INSERT INTO images (id) VALUES (1)", invalid, &["column image"]).await;
    lake.refuses("INSERT INTO images SELECT id, image, [1, 2] FROM images", invalid, &["column emb", "2 elements"])
        .await;
}

#[tokio::test]
async fn tables_are_created_replaced_and_dropped() {
    let lake = lake().await;
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("CREATE TABLE t (a INT)", ErrorKind::AlreadyExists, &["table t"]).await;
    assert_eq!(lake.done("CREATE TABLE IF NOT EXISTS t (a INT)").await.version, Some(2));
    let replaced = lake.done("CREATE OR REPLACE TABLE t AS SELECT id, name FROM t WHERE id < 3").await;
    assert_eq!((replaced.num_rows, replaced.version), (Some(2), Some(3)));
    assert_eq!(shown(&lake, ALL).await, ["1 a", "2 b"]);
    assert_eq!(shown(&lake, "SELECT count(*) FROM t AT (VERSION => 2)").await, ["4"]);
    lake.refuses("CREATE TABLE u AS SELECT id + 1 FROM t", invalid, &["name it with AS"]).await;
    lake.refuses("CREATE TABLE u AS SELECT NULL AS a", invalid, &["has the type Null"]).await;
    lake.refuses("CREATE TABLE u (a WORDS)", invalid, &["no type WORDS", "FLOAT[128]"]).await;
    lake.refuses("CREATE TABLE u (_distance REAL)", invalid, &["_distance"]).await;
    lake.refuses("DROP TABLE u", ErrorKind::NotFound, &["table u"]).await;
    lake.done("DROP TABLE IF EXISTS u").await;
    lake.done("DROP TABLE t").await;
    lake.refuses("INSERT INTO t VALUES (1)", ErrorKind::NotFound, &["table t"]).await;
    lake.done("CREATE TABLE t (a INT)").await;
    assert_eq!(shown(&lake, "SELECT count(*) FROM t").await, ["0"]);
}

#[tokio::test]
async fn columns_are_added_dropped_and_renamed() {
    let lake = lake().await;
    let added = lake
        .done("ALTER TABLE t ADD COLUMN double_x BIGINT AS (x * 2), ADD COLUMN note TEXT, ADD up AS upper(name)")
        .await;
    assert_eq!((added.statement.as_str(), added.num_rows), ("ALTER TABLE", Some(4)));
    assert_eq!(
        shown(&lake, "SELECT id, double_x, note, up FROM t ORDER BY id").await,
        ["1 20 NULL A", "2 40 NULL B", "3 NULL NULL C", "4 80 NULL NULL"]
    );
    lake.done("INSERT INTO t (id, note) VALUES (5, 'five')").await;
    lake.done("ALTER TABLE t RENAME COLUMN note TO remark").await;
    lake.done("ALTER TABLE t DROP COLUMN up, DROP COLUMN IF EXISTS nope").await;
    let kept = lake.done("ALTER TABLE t ADD COLUMN IF NOT EXISTS remark TEXT").await;
    assert_eq!(kept.version, Some(table(&lake, "t").await.version()));
    assert_eq!(
        shown(&lake, "SELECT * FROM t WHERE id > 3 ORDER BY id").await,
        ["4 40 NULL 80 NULL", "5 NULL NULL NULL five"]
    );
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("ALTER TABLE t ADD COLUMN remark TEXT", invalid, &["remark"]).await;
    lake.refuses("ALTER TABLE t ADD COLUMN a INT NOT NULL", invalid, &["column a", "nulls"]).await;
    lake.refuses("ALTER TABLE t ADD COLUMN a SMALLINT AS (id * 10000)", invalid, &["column a", "row_id", "40000"])
        .await;
    lake.refuses("ALTER TABLE t DROP COLUMN nope", invalid, &["nope"]).await;
    lake.refuses("ALTER TABLE t RENAME COLUMN id TO x", invalid, &["x"]).await;
}

#[tokio::test]
async fn views_are_stored_queries() {
    let lake = lake().await;
    lake.done("CREATE VIEW big AS SELECT id, x FROM t WHERE x >= 20").await;
    assert_eq!(shown(&lake, "SELECT * FROM big ORDER BY id").await, ["2 20", "4 40"]);
    lake.done("UPDATE t SET x = 99 WHERE id = 1").await;
    assert_eq!(shown(&lake, "SELECT * FROM big ORDER BY id").await, ["1 99", "2 20", "4 40"]);
    lake.done("INSERT INTO s SELECT id, x FROM big WHERE id = 1").await;
    lake.done("CREATE OR REPLACE VIEW big AS SELECT id FROM t WHERE x > 50").await;
    assert_eq!(shown(&lake, "SELECT * FROM big").await, ["1"]);
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("CREATE VIEW big AS SELECT 1", ErrorKind::AlreadyExists, &["view big", "CREATE OR REPLACE VIEW"])
        .await;
    lake.done("CREATE VIEW IF NOT EXISTS big AS SELECT 1 AS one").await;
    lake.refuses("CREATE VIEW t AS SELECT 1 AS one", invalid, &["there is a table"]).await;
    lake.refuses("CREATE TABLE big (a INT)", invalid, &["there is a view"]).await;
    lake.refuses("CREATE VIEW wrong AS SELECT nope FROM t", invalid, &["nope"]).await;
    lake.done("CREATE VIEW outer_view AS SELECT id FROM big").await;
    lake.refuses("CREATE OR REPLACE VIEW big AS SELECT id FROM outer_view", invalid, &["cannot be recursive"]).await;
    lake.refuses("DELETE FROM big", invalid, &["view big"]).await;
    lake.refuses("DROP VIEW t", ErrorKind::NotFound, &["it is a table"]).await;
    lake.refuses("DROP VIEW nope", ErrorKind::NotFound, &["big, outer_view"]).await;
    lake.done("DROP VIEW outer_view").await;
    lake.done("DROP VIEW big").await;
    lake.done("DROP VIEW IF EXISTS big").await;
    assert_eq!(shown(&lake, "SELECT count(*) FROM information_schema.views").await, ["0"]);
}

#[tokio::test]
async fn tags_name_versions_and_old_ones_are_cleaned() {
    let lake = lake().await;
    assert_eq!(lake.done("CREATE TAG first ON t AT (VERSION => 1)").await.version, Some(1));
    lake.done("CREATE TAG 'v-2' ON t").await;
    lake.done("CREATE TAG IF NOT EXISTS first ON t").await;
    assert_eq!(shown(&lake, "SHOW TAGS FROM t").await, ["first 1", "v-2 2"]);
    assert_eq!(shown(&lake, "SELECT count(*) FROM t AT (TAG => 'first')").await, ["0"]);
    lake.refuses("CREATE TAG first ON t", ErrorKind::AlreadyExists, &["first", "version 1"]).await;
    lake.refuses("CREATE TAG a ON t AT (VERSION => 9)", ErrorKind::NotFound, &["version 9"]).await;
    let invalid = ErrorKind::InvalidRequest;
    lake.refuses("CREATE TAG \"stoker.until.2030\" ON t", invalid, &["keep versions that streams read"]).await;
    lake.refuses("DROP TAG \"stoker.until.2030\" ON t", invalid, &["keep versions that streams read"]).await;
    lake.done("DROP TAG first ON t").await;
    lake.refuses("DROP TAG first ON t", ErrorKind::NotFound, &["tag first", "v-2"]).await;
    lake.done("DROP TAG IF EXISTS first ON t").await;
    lake.refuses("CREATE BRANCH b ON t", invalid, &["use a lake in a folder"]).await;
    // Versions that were replaced less than a day ago stay.
    let vacuumed = lake.done("VACUUM t RETAIN 1 VERSIONS DRY RUN").await;
    assert!(vacuumed.message.starts_with("would remove 0 versions"), "{}", vacuumed.message);
    lake.done("VACUUM").await;
    lake.refuses("VACUUM nothing", ErrorKind::NotFound, &["table nothing"]).await;
    lake.refuses("VACUUM t OLDER THAN 'soon'", invalid, &["'7 days'"]).await;
    assert_eq!(shown(&lake, "SELECT count(*) FROM t AT (VERSION => 1)").await, ["0"]);
}

#[tokio::test]
async fn concurrent_statements_lose_and_double_nothing() {
    let lake = Fixture::new(3).await;
    lake.done("CREATE TABLE counters (id BIGINT, n BIGINT)").await;
    lake.done("INSERT INTO counters VALUES (0, 0), (1, 0)").await;
    let lake_of_all = &lake;
    let write = |writer: i64| async move {
        let lake = lake_of_all;
        for round in 0..4 {
            lake.done("UPDATE counters SET n = n + 1 WHERE id = 0").await;
            let merge = format!(
                "MERGE INTO counters USING (VALUES (1, 1), ({}, 1)) AS v (id, n) ON counters.id = v.id \
                 WHEN MATCHED THEN UPDATE SET n = counters.n + v.n WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.n)",
                10 + round
            );
            lake.done(&merge).await;
            lake.done(&format!("INSERT INTO counters VALUES ({}, 7)", 100 + writer * 10 + round)).await;
        }
    };
    futures::future::join_all((0..4).map(write)).await;
    let counted = shown(&lake, "SELECT id, n FROM counters WHERE id < 100 ORDER BY id").await;
    assert_eq!(counted, ["0 16", "1 16", "10 4", "11 4", "12 4", "13 4"]);
    assert_eq!(shown(&lake, "SELECT count(*), count(DISTINCT id) FROM counters WHERE id >= 100").await, ["16 16"]);
}

/// Rows that others add, without a key, while the new rows are computed are not lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_replaced_by_its_own_rows_keeps_those_of_others() {
    let lake = Fixture::new(3).await;
    let is_first = AtomicBool::new(true);
    let append = |progress: StatementProgress| {
        if progress.phase == "writing the rows" && is_first.swap(false, Ordering::Relaxed) {
            tokio::task::block_in_place(|| Handle::current().block_on(lake.append(3..5)));
        }
    };
    let sql = "CREATE OR REPLACE TABLE samples AS SELECT id, title FROM samples";
    let replaced = execute(&lake.engine, sql, &[], &append).await.expect("evaluated again");
    assert!(!is_first.load(Ordering::Relaxed), "rows were added");
    assert_eq!((replaced.num_rows, replaced.version), (Some(5), Some(3)));
    assert_eq!(shown(&lake, "SELECT count(*) FROM samples").await, ["5"]);
}
