use super::*;
use crate::{Change, SQL_BYTES_MAX};

fn write(sql: &str) -> WriteAction {
    match Change::parse(sql) {
        Ok(Change::Write(statement)) => {
            assert_eq!(statement.to_string(), sql.trim());
            assert!(Change::parse(&statement.to_string()).is_ok_and(|again| again == Change::Write(statement)));
            write_action(sql)
        }
        Ok(other) => panic!("{sql}: {other}"),
        Err(error) => panic!("{sql}: {error}"),
    }
}

fn write_action(sql: &str) -> WriteAction {
    WriteStatement::parse(sql).expect(sql).expect("a statement of this family").action
}

fn named(name: &str) -> QualifiedName {
    QualifiedName(vec![name.into()])
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

fn assignment(column: &str, value: &str) -> Assignment {
    Assignment { column: column.into(), value: value.into() }
}

#[test]
fn inserts_have_a_query_or_parameters() {
    let insert = |columns: &[&str], rows| WriteAction::Insert { table: named("t"), columns: texts(columns), rows };
    let query = |sql: &str| InsertRows::Query(sql.into());
    assert_eq!(
        write("INSERT INTO T VALUES (1, 'it''s'), (?, NULL);"),
        insert(&[], query("VALUES (1, 'it''s'), ($1, NULL)"))
    );
    assert_eq!(
        write("insert into t (A, \"B\") select x, y from s at (version => 3) -- all\n"),
        insert(&["a", "B"], query("select x, y from s at (version => 3)"))
    );
    assert_eq!(write("INSERT INTO t (SELECT 1)"), insert(&[], query("(SELECT 1)")));
    assert_eq!(write("INSERT INTO t VALUES (?, ?)"), insert(&[], InsertRows::Parameters(vec![0, 1])));
    assert_eq!(write("INSERT INTO t (a, b) VALUES ($2, $1)"), insert(&["a", "b"], InsertRows::Parameters(vec![1, 0])));
    assert_eq!(
        write("WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q"),
        insert(&[], query("WITH q AS (SELECT 1) SELECT * FROM (SELECT * FROM q) AS \"rows\""))
    );
}

#[test]
fn updates_and_deletes_have_relations_and_predicates() {
    let updated = write(
        "UPDATE public.t AS x SET a = x.a + ? , x.b = (SELECT max(b) FROM s) FROM s JOIN r ON s.i = r.i, q \
         WHERE x.i = s.i AND x.v <-> ? < 1",
    );
    let expected = WriteAction::Update {
        table: Target { name: QualifiedName(texts(&["public", "t"])), alias: Some("x".into()), with: None },
        assignments: vec![assignment("a", "x.a + $1"), assignment("b", "(SELECT max(b) FROM s)")],
        from: Some("s JOIN r ON s.i = r.i, q".into()),
        predicate: Some("x.i = s.i AND x.v <-> $2 < 1".into()),
    };
    assert_eq!(updated, expected);
    let bare = write("update t set t.a = null");
    assert!(matches!(&bare, WriteAction::Update { table, from: None, predicate: None, .. } if table.shown() == "t"));
    let deleted = write("WITH q AS (SELECT 1 AS i) DELETE FROM t d USING q WHERE d.i = q.i");
    let expected = WriteAction::Delete {
        table: Target { name: named("t"), alias: Some("d".into()), with: Some("q AS (SELECT 1 AS i)".into()) },
        using: Some("q".into()),
        predicate: Some("d.i = q.i".into()),
    };
    assert_eq!(deleted, expected);
    assert!(matches!(write("DELETE FROM t"), WriteAction::Delete { using: None, predicate: None, .. }));
}

#[test]
fn merges_have_clauses() {
    let merged = write(
        "MERGE INTO t USING (SELECT * FROM s WHERE i > $1) AS s ON t.i = s.i WHEN MATCHED AND s.gone THEN DELETE \
         WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED BY TARGET AND s.a > 0 THEN INSERT (i, a) VALUES (s.i, \
         s.a + 1)",
    );
    let expected = WriteAction::Merge {
        table: Target { name: named("t"), ..Target::default() },
        source: "(SELECT * FROM s WHERE i > $1) AS s".into(),
        on: "t.i = s.i".into(),
        clauses: vec![
            MergeClause { predicate: Some("s.gone".into()), action: MergeAction::Delete },
            MergeClause { predicate: None, action: MergeAction::Update(vec![assignment("a", "s.a")]) },
            MergeClause {
                predicate: Some("s.a > 0".into()),
                action: MergeAction::Insert { columns: texts(&["i", "a"]), values: texts(&["s.i", "s.a + 1"]) },
            },
        ],
    };
    assert_eq!(merged, expected);
}

#[test]
fn tables_and_columns_are_defined() {
    let created = write(
        "CREATE TABLE IF NOT EXISTS t (a INT NOT NULL, v FLOAT[128], p DECIMAL(10, 2) NULL, m ARRAY<INT>, \
         x List(non-null Int64))",
    );
    let column = |name: &str, data_type: &str, nullable| ColumnDefinition {
        name: name.into(),
        data_type: data_type.into(),
        nullable,
    };
    let columns = vec![
        column("a", "INT", false),
        column("v", "FLOAT[128]", true),
        column("p", "DECIMAL(10, 2)", true),
        column("m", "ARRAY<INT>", true),
        column("x", "List(non-null Int64)", true),
    ];
    let content = TableContent::Columns(columns);
    assert_eq!(created, WriteAction::CreateTable { table: named("t"), existing: Existing::Kept, content });
    let content = TableContent::Query("SELECT 1 AS a".into());
    let copied = WriteAction::CreateTable { table: named("t"), existing: Existing::Replaced, content };
    assert_eq!(write("CREATE OR REPLACE TABLE t AS SELECT 1 AS a"), copied);
    let added = |name: &str, if_not_exists, data_type: Option<&str>, nullable, value: Option<&str>| AddedColumn {
        name: name.into(),
        if_not_exists,
        data_type: data_type.map(Into::into),
        nullable,
        value: value.map(Into::into),
    };
    let columns = vec![
        added("a", true, Some("DOUBLE PRECISION"), false, Some("(b * 2)")),
        added("c", false, None, true, Some("upper(d)")),
        added("e", false, Some("TEXT"), true, None),
    ];
    let sql = "ALTER TABLE t ADD COLUMN IF NOT EXISTS a DOUBLE PRECISION NOT NULL AS (b * 2), ADD c AS upper(d), \
               ADD COLUMN e TEXT";
    assert_eq!(write(sql), WriteAction::AddColumns { table: named("t"), columns });
    let columns = vec![("a".to_string(), true), ("b".to_string(), false)];
    let dropped = WriteAction::DropColumns { table: named("t"), columns };
    assert_eq!(write("ALTER TABLE t DROP COLUMN IF EXISTS a, DROP b"), dropped);
    let renamed = WriteAction::RenameColumn { table: named("t"), from: "a".into(), to: "B".into() };
    assert_eq!(write("ALTER TABLE t RENAME COLUMN a TO \"B\""), renamed);
    let altered = |data_type: Option<&str>, value: Option<&str>| WriteAction::AlterColumn {
        table: named("t"),
        column: "a".into(),
        data_type: data_type.map(Into::into),
        value: value.map(Into::into),
    };
    assert_eq!(write("ALTER TABLE t ALTER COLUMN a TYPE DOUBLE PRECISION"), altered(Some("DOUBLE PRECISION"), None));
    assert_eq!(write("ALTER TABLE t ALTER a SET DATA TYPE FLOAT[3]"), altered(Some("FLOAT[3]"), None));
    assert_eq!(write("ALTER TABLE t ALTER a TYPE INT USING (b + 1)"), altered(Some("INT"), Some("(b + 1)")));
    assert_eq!(write("ALTER TABLE t ALTER COLUMN a AS upper(b)"), altered(None, Some("upper(b)")));
    let restored = |table: &str, at| WriteAction::Restore { table: named(table), at };
    assert_eq!(write("RESTORE TABLE t AT (VERSION => 3)"), restored("t", NamedVersion::Number(3)));
    assert_eq!(write("RESTORE t AT (TAG => 'v1')"), restored("t", NamedVersion::Tag("v1".into())));
    let of_branch = "RESTORE TABLE t AT (BRANCH => 'dev', VERSION => 3)";
    assert_eq!(write(of_branch), restored("t@dev", NamedVersion::Number(3)));
    assert_eq!(write("TRUNCATE t"), WriteAction::Truncate { table: named("t") });
    let dropped = |if_exists, cascades| WriteAction::DropTable { table: named("t"), if_exists, cascades };
    assert_eq!(write("DROP TABLE IF EXISTS t"), dropped(true, false));
    assert_eq!(write("DROP TABLE t RESTRICT"), dropped(false, false));
    assert_eq!(write("DROP TABLE t CASCADE"), dropped(false, true));
}

#[test]
fn views_tags_and_old_versions_have_statements() {
    let view = WriteAction::CreateView { view: named("v"), existing: Existing::Replaced, query: "SELECT 1".into() };
    assert_eq!(write("CREATE OR REPLACE VIEW v AS SELECT 1 -- one"), view);
    assert_eq!(write("DROP VIEW v"), WriteAction::DropView { view: named("v"), if_exists: false });
    let tag = |table, at| WriteAction::CreateTag { tag: "v1".into(), if_not_exists: false, table: named(table), at };
    assert_eq!(write("CREATE TAG v1 ON t"), tag("t", NamedVersion::Newest));
    assert_eq!(write("CREATE TAG 'v1' ON t AT (VERSION => 3)"), tag("t", NamedVersion::Number(3)));
    assert_eq!(write("CREATE TAG v1 ON t AT (TAG => 'v0')"), tag("t", NamedVersion::Tag("v0".into())));
    assert_eq!(write("CREATE TAG v1 ON t AT (BRANCH => 'dev')"), tag("t@dev", NamedVersion::Newest));
    assert_eq!(write("CREATE TAG v1 ON t AT (BRANCH => 'dev', VERSION => 3)"), tag("t@dev", NamedVersion::Number(3)));
    let dropped = WriteAction::DropTag { tag: "V1".into(), if_exists: true, table: named("t") };
    assert_eq!(write("DROP TAG IF EXISTS \"V1\" ON t"), dropped);
    let branch =
        |table, at| WriteAction::CreateBranch { branch: "dev".into(), if_not_exists: true, table: named(table), at };
    assert_eq!(write("CREATE BRANCH IF NOT EXISTS dev ON t"), branch("t", NamedVersion::Newest));
    let at_version = branch("t@a", NamedVersion::Number(3));
    assert_eq!(write("CREATE BRANCH IF NOT EXISTS 'dev' ON t AT (VERSION => 3, BRANCH => 'a')"), at_version);
    assert_eq!(write("CREATE BRANCH IF NOT EXISTS dev ON \"t@a\" AT (BRANCH => 'main', VERSION => 3)"), {
        branch("t", NamedVersion::Number(3))
    });
    let dropped =
        |if_exists, cascades| WriteAction::DropBranch { branch: "dev".into(), if_exists, table: named("t"), cascades };
    assert_eq!(write("DROP BRANCH dev ON t"), dropped(false, false));
    assert_eq!(write("DROP BRANCH IF EXISTS dev ON t CASCADE"), dropped(true, true));
    let vacuum =
        |table: Option<&str>, retain, is_dry_run| WriteAction::Vacuum { table: table.map(named), retain, is_dry_run };
    assert_eq!(write("VACUUM"), vacuum(None, Retained::Default, false));
    assert_eq!(write("VACUUM t RETAIN 3 VERSIONS DRY RUN"), vacuum(Some("t"), Retained::Versions(3), true));
    for time in ["'7 days'", "7 days", "INTERVAL '7' days", "INTERVAL '7 days'"] {
        let sql = format!("VACUUM t OLDER THAN {time}");
        assert_eq!(write(&sql), vacuum(Some("t"), Retained::Newer("7 days".into()), false), "{sql}");
    }
    assert_eq!(write("VACUUM DRY RUN"), vacuum(None, Retained::Default, true));
}

#[test]
fn what_is_not_supported_says_what_to_write() {
    for (sql, part) in [
        ("INSERT INTO t DEFAULT VALUES", "name the values"),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "MERGE INTO"),
        ("INSERT INTO t VALUES (1) RETURNING a", "RETURNING"),
        ("INSERT OR REPLACE INTO t VALUES (1)", "MERGE INTO"),
        ("INSERT INTO t (a, A) VALUES (1, 2)", "column a is named twice"),
        ("INSERT INTO t AT (VERSION => 3) VALUES (1)", "writes go to the newest version"),
        ("UPDATE t AT (TAG => 'v1') SET a = 1", "writes go to the newest version"),
        ("UPDATE t SET (a, b) = (1, 2)", "each column by itself"),
        ("UPDATE t SET a = DEFAULT", "no default"),
        ("UPDATE t SET a = 1, a = 2", "column a is named twice"),
        ("UPDATE t SET s.a = 1", "columns of table t are set"),
        ("DELETE FROM t WHERE a = 1 LIMIT 3", "LIMIT"),
        ("DELETE FROM t; DROP TABLE t", "one statement at a time"),
        ("MERGE INTO t USING s ON true", "WHEN"),
        ("MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET a = 1", "never reached"),
        ("MERGE INTO t USING s ON true WHEN NOT MATCHED BY SOURCE THEN DELETE", "NOT EXISTS"),
        ("MERGE INTO t USING s ON true WHEN NOT MATCHED THEN DELETE", "INSERT after NOT MATCHED"),
        ("MERGE INTO t USING s ON true WHEN NOT MATCHED THEN INSERT (a) VALUES (1, 2)", "1 columns and 2 values"),
        ("CREATE TABLE t (a INT PRIMARY KEY)", "no keys"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", "no keys"),
        ("CREATE TABLE t (a)", "the type of a column"),
        ("CREATE OR REPLACE TABLE IF NOT EXISTS t AS SELECT 1", "not both"),
        ("CREATE TABLE t (a INT) AS SELECT 1", "those of the query"),
        ("CREATE TEMPORARY TABLE t (a INT)", "CREATE TEMPORARY"),
        ("ALTER TABLE t ADD COLUMN a INT DEFAULT 3", "no defaults"),
        ("ALTER TABLE t ADD COLUMN a INT, DROP COLUMN b", "either adds, drops or renames"),
        ("ALTER TABLE t ALTER COLUMN a", "write TYPE and a type, AS and an expression, or both"),
        ("ALTER TABLE t ALTER COLUMN a TYPE", "the type of a column"),
        ("ALTER TABLE t ALTER COLUMN a TYPE INT, ALTER COLUMN b TYPE INT", "a statement for each"),
        ("ALTER TABLE t MODIFY a INT", "ADD, ALTER, DROP or RENAME COLUMN"),
        ("RESTORE TABLE t", "the version is missing"),
        ("RESTORE TABLE t AT (BRANCH => 'dev')", "the version is missing"),
        ("RESTORE TABLE t TO VERSION 3", "the version is missing"),
        ("ALTER TABLE t RENAME TO s", "keeps its name"),
        ("CREATE VIEW v (a) AS SELECT 1", "those of its query"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE a = $1", "no parameters"),
        ("INSERT INTO t AT (BRANCH => 'dev', VERSION => 3) VALUES (1)", "writes go to the newest version"),
        ("CREATE BRANCH b", "ON"),
        ("CREATE BRANCH b ON t AT (BRANCH => 'a', BRANCH => 'c')", "a number, a tag or a branch"),
        ("CREATE TAG a ON t AT (TIMESTAMP => '2026-01-01')", "a number, a tag or a branch"),
        ("WITH RECURSIVE q AS (SELECT 1) DELETE FROM t", "RECURSIVE"),
    ] {
        let error = Change::parse(sql).expect_err(sql).to_string();
        assert!(error.contains(part), "{sql}: {error}");
    }
    let long = format!("INSERT INTO t VALUES ('{}')", "a".repeat(SQL_BYTES_MAX));
    assert!(Change::parse(&long).is_err_and(|error| error.to_string().contains("the limit is")));
    let deep = format!("DELETE FROM t WHERE a = 1{}", " + 1".repeat(15_000));
    assert!(Change::parse(&deep).is_ok(), "a long chain needs a large stack only");
    let lists = |count: usize| format!("INT{}", "[]".repeat(count));
    let nested = |open: &str, count: usize, close: &str| format!("{}INT{}", open.repeat(count), close.repeat(count));
    assert!(Change::parse(&format!("CREATE TABLE t (a {}, b {})", lists(64), lists(64))).is_ok());
    for data_type in [
        lists(65),
        lists(30_000),
        nested("List(", 10_000, ")"),
        nested("ARRAY<", 9_000, ">"),
        "List(".repeat(10_000),
        format!("INT /* {}[ */ ]", "[]".repeat(10_000)),
    ] {
        for sql in [format!("CREATE TABLE t (a {data_type})"), format!("ALTER TABLE t ADD COLUMN a {data_type}")] {
            let error = Change::parse(&sql).expect_err("a type that is nested deeply").to_string();
            assert!(error.contains("the limit is 64"), "{error}");
        }
    }
}
