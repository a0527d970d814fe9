//! Texts of users, which may be no queries at all.

use stoker_fuzz::Target;

use crate::{Change, Ending, is_change, is_same_query, numbered, parser, statements};

/// Parts of queries.
const TOKENS: [&str; 45] = [
    "SELECT ",
    " FROM ",
    " WHERE ",
    " AT (",
    "TAG => 'v1'",
    "VERSION => 3",
    "EXPLAIN ",
    "EXPLAIN (FORMAT json) ",
    "SHOW COLUMNS FROM ",
    "SHOW TABLES ",
    "DESCRIBE ",
    "WITH RECURSIVE ",
    " UNION ALL ",
    " JOIN t ON ",
    " OVER (PARTITION BY ",
    "CASE WHEN ",
    " THEN ",
    " END",
    "NOT ",
    " BETWEEN ",
    " IS NULL",
    " LIKE ",
    "EXISTS (",
    "CAST(",
    "INTERVAL ",
    "ARRAY[",
    "MAP {",
    "{'a': ",
    "::",
    "(",
    ")",
    "[",
    "]",
    ";",
    "/*",
    "*/",
    "--",
    "\n",
    "'",
    "\"",
    "$1",
    "$a",
    "?",
    "<->",
    "<#>",
];

const QUERIES: [&str; 16] = [
    "SELECT id, image FROM samples AT (TAG => 'v1') WHERE label < $1 AND name <> 'a  b' ORDER BY id",
    "select id,image from samples at (tag=>'v1')\nwhere label<$1 and name<>'a  b' order by id;",
    "/* rows /* nested */ */ SELECT 1 -- one\n;;",
    "WITH a AS (SELECT x, count(*) FILTER (WHERE y > 2) AS n FROM t GROUP BY x) SELECT * EXCEPT (n) FROM a",
    "SELECT * FROM nearest(samples AT (VERSION => 3), ?, 10) AS n JOIN t USING (id) WHERE n.v <-> ? < 0.5",
    "SELECT a <=> b, a <#> b, a[1], b['c'].d, {'x': 1, 'y': [2, 3]}, MAP {'k': 1} FROM t",
    "SELECT sum(a) OVER (PARTITION BY b ORDER BY c ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t WINDOW w AS ()",
    "SELECT CASE WHEN a IS NULL THEN 1 WHEN b LIKE 'x%' ESCAPE '!' THEN 2 ELSE -3e-4 END, CAST(a AS DECIMAL(10, 2))",
    "(SELECT 1 UNION ALL SELECT 2) INTERSECT VALUES (1), (2) ORDER BY 1 DESC NULLS LAST LIMIT 1 OFFSET 2",
    "SELECT EXTRACT(YEAR FROM d), d AT TIME ZONE 'UTC', INTERVAL '1' DAY, DATE '2024-01-01', E'\\n', U&'\\0041', X'00'",
    "SELECT \"quoted \"\" name\", lower(\"Name\"), Lower(Name), a.b.c(1), \u{e4}$ FROM \"T\" AS x(y, z)",
    "SELECT t.* FROM t, LATERAL (SELECT 1) AS u, UNNEST([1, 2]) AS v WHERE EXISTS (SELECT 1) AND a IN (1, 2) AND NOT b",
    "SHOW VERSIONS FROM a.b AT (TAG => ?) WHERE version > ? OR tags = ['x']",
    "EXPLAIN (ANALYZE, FORMAT json) SHOW TABLES FROM public ILIKE '%x'",
    "EXPLAIN SELECT DISTINCT ON (a) a FROM t LEFT JOIN u ON t.a = u.a CROSS JOIN v",
    "SELECT a->'b'->>'c', a::INT::TEXT, a || b, ~a, a & b | c ^ d << 2, TRIM(BOTH 'x' FROM a), POSITION('a' IN b)",
];

/// Queries that repeat one construct, within or after each other.
fn repetitions() -> impl Iterator<Item = String> {
    let nested = [
        ("(", ")"),
        ("NOT ", ""),
        ("- ", ""),
        ("f(", ")"),
        ("[", "]"),
        ("(SELECT ", ")"),
        ("CASE WHEN ", " THEN 1 END"),
    ];
    let nested = nested.map(|(open, close)| format!("SELECT {}1{}", open.repeat(60), close.repeat(60)));
    let operators = ["+ a", "AND a", "|| a", "::INT", "[1]", "IS NULL", "-> a", "UNION SELECT 1"];
    let operators = operators.map(|link| format!("SELECT 1 FROM a WHERE a {}", format!("{link} ").repeat(60)));
    let tables = ["JOIN b ON a ", ", b "].map(|link| format!("SELECT 1 FROM a {}", link.repeat(60)));
    nested.into_iter().chain(operators).chain(tables)
}

#[test]
fn texts_are_refused_or_the_same_query_as_themselves() {
    let seeds = QUERIES.map(String::from).into_iter().chain(repetitions()).map(String::into_bytes);
    let is_a_query = |text: &str| is_same_query(text, &format!(" {text}"));
    Target::new("queries").seeds(seeds).tokens(TOKENS).run(|input| {
        let text = String::from_utf8_lossy(input);
        for statement in statements(&text).complete {
            let alone = format!("{statement};");
            let divided = statements(&alone);
            assert_eq!((divided.complete, divided.rest, divided.ending), (vec![statement], "", Ending::Blank));
        }
        if let Ok(query) = numbered(&text) {
            let again = numbered(&query.sql);
            assert!(again.is_ok_and(|again| again.sql == query.sql && again.names.is_empty()));
        }
        let parsed = parser(&text).ok().and_then(|mut parser| parser.parse_statements().ok());
        let is_parsed = parsed.is_some();
        drop(parsed);
        if !is_parsed {
            assert!(!is_a_query(&text));
            return false;
        }
        if is_a_query(&text) {
            assert!(is_same_query(&text, &format!("/* a */{text}\n;\n")));
        }
        let others =
            [text.to_ascii_lowercase(), text.to_ascii_uppercase(), QUERIES[input.len() % QUERIES.len()].into()];
        for other in &others {
            assert_eq!(is_same_query(&text, other), is_same_query(other, &text), "{other}");
        }
        true
    });
}

/// Statements that change a lake.
const CHANGES: [&str; 17] = [
    "CREATE OR REPLACE INDEX a ON lake.public.t USING ivf_pq (emb) WITH (num_partitions = 16, metric = 'l2', x = -1e3)",
    "/* one */ create index if not exists \"a \"\" b\" on \"t-1\" (c) with (language = english, stop_words = FALSE);",
    "DROP INDEX IF EXISTS a ON t",
    "OPTIMIZE INDEX ON t -- all",
    "OPTIMIZE TABLE t WITH (rows_per_fragment = 1000, all = TRUE) DRY RUN",
    "WITH a (b) AS (SELECT 1) DELETE FROM t WHERE x IN (SELECT b FROM a)",
    "INSERT INTO lake.public.t (a, \"B\") VALUES ($1, $2), ($3, 'it''s') -- rows",
    "INSERT INTO t SELECT x, y FROM s AT (VERSION => 3) WHERE x > 1 UNION ALL SELECT 1, 2;",
    "UPDATE t AS x SET a = x.a + 1, b = (SELECT max(b) FROM s) FROM s, u WHERE s.i = x.i AND NOT u.j IS NULL",
    "MERGE INTO t USING (SELECT * FROM rows($1)) AS s ON t.i = s.i WHEN MATCHED AND s.x > 1 THEN UPDATE SET a = s.a \
     WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (i, a) VALUES (s.i, s.a)",
    "CREATE TABLE IF NOT EXISTS t (a INT NOT NULL, v FLOAT[128], p DECIMAL(10, 2), x List(non-null Int64))",
    "CREATE OR REPLACE TABLE t AS SELECT a, b FROM s WHERE c = $1",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS a BIGINT AS (b * 2), ADD c TEXT",
    "ALTER TABLE t ALTER COLUMN a SET DATA TYPE FLOAT[3] USING (b || c)",
    "RESTORE TABLE t AT (VERSION => 3)",
    "CREATE OR REPLACE VIEW v AS WITH a AS (SELECT 1 AS x) SELECT * FROM a JOIN t USING (x)",
    "VACUUM t RETAIN 5 VERSIONS DRY RUN",
];

#[test]
fn changes_are_refused_or_the_same_again() {
    let words =
        ["CREATE ", "INDEX ", "DROP ", "OPTIMIZE ", " ON ", " USING ", " WITH (", " = ", "IF NOT EXISTS ", ", "];
    let of_writes =
        ["INSERT INTO ", "VALUES (", "UPDATE ", " SET ", "MERGE INTO ", "WHEN NOT MATCHED THEN ", "ADD COLUMN "];
    let tokens: Vec<&str> = TOKENS.into_iter().chain(words).chain(of_writes).collect();
    let seeds = CHANGES.into_iter().map(|text| text.as_bytes().to_vec());
    Target::new("changes").seeds(seeds).tokens(tokens).run(|input| {
        let text = String::from_utf8_lossy(input);
        let Ok(change) = Change::parse(&text) else { return false };
        assert!(is_change(&text) && is_change(&change.to_string()));
        assert_eq!(Change::parse(&change.to_string()).expect("a statement that was written"), change);
        true
    });
}
