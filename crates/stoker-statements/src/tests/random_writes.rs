//! Random statements, compared with a model of the table in memory.

use std::collections::BTreeMap;

use super::fixture::Fixture;
use super::writes::{shown, table};

/// The number of statements on one table.
const STATEMENTS: usize = 40;

/// The number of rows of the table above which rows are deleted next.
const ROWS_MAX: usize = 200;

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn name(&mut self) -> Option<&'static str> {
        [Some("a"), Some("b"), Some("c"), None][usize::try_from(self.below(4)).expect("an index")]
    }
}

/// A row of the table `t` or of a source, whose columns are called `id`, `y` and `name`.
#[derive(Clone)]
struct Row {
    id: i64,
    x: Option<i64>,
    name: Option<&'static str>,
}

impl Row {
    fn random(random: &mut Random, id: i64) -> Self {
        let x = Some(random.below(100)).filter(|x| x % 5 != 0);
        Self { id, x, name: random.name() }
    }

    fn shown(&self) -> String {
        let x = self.x.map_or("NULL".to_string(), |x| x.to_string());
        format!("{} {x} {}", self.id, self.name.unwrap_or("NULL"))
    }

    fn sql(&self) -> String {
        format!("({}, {}, {})", self.id, number(self.x), text(self.name))
    }
}

fn number(value: Option<i64>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

fn text(value: Option<&str>) -> String {
    value.map_or("NULL".into(), |value| format!("'{value}'"))
}

fn list(rows: &[Row]) -> String {
    rows.iter().map(Row::sql).collect::<Vec<_>>().join(", ")
}

/// A predicate on the rows of `t`, with SQL's logic of three values.
enum Predicate {
    IdModulo(i64, i64),
    XBelow(i64),
    NameIs(&'static str),
    NameIsNull,
    Not(Box<Predicate>),
    And(Box<Predicate>, Box<Predicate>),
    Or(Box<Predicate>, Box<Predicate>),
}

impl Predicate {
    fn random(random: &mut Random, levels: u32) -> Self {
        let part = |random: &mut Random| Box::new(Self::random(random, levels - 1));
        match random.below(if levels == 0 { 4 } else { 7 }) {
            0 => {
                let divisor = 2 + random.below(4);
                Self::IdModulo(divisor, random.below(divisor))
            }
            1 => Self::XBelow(random.below(120)),
            2 => Self::NameIs("b"),
            3 => Self::NameIsNull,
            4 => Self::Not(part(random)),
            5 => Self::And(part(random), part(random)),
            _ => Self::Or(part(random), part(random)),
        }
    }

    fn sql(&self) -> String {
        match self {
            Self::IdModulo(divisor, rest) => format!("t.id % {divisor} = {rest}"),
            Self::XBelow(bound) => format!("t.x < {bound}"),
            Self::NameIs(name) => format!("t.name = '{name}'"),
            Self::NameIsNull => "t.name IS NULL".into(),
            Self::Not(inner) => format!("NOT ({})", inner.sql()),
            Self::And(one, other) => format!("({}) AND ({})", one.sql(), other.sql()),
            Self::Or(one, other) => format!("({}) OR ({})", one.sql(), other.sql()),
        }
    }

    fn value(&self, row: &Row) -> Option<bool> {
        match self {
            Self::IdModulo(divisor, rest) => Some(row.id % divisor == *rest),
            Self::XBelow(bound) => row.x.map(|x| x < *bound),
            Self::NameIs(name) => row.name.map(|found| found == *name),
            Self::NameIsNull => Some(row.name.is_none()),
            Self::Not(inner) => inner.value(row).map(|value| !value),
            Self::And(one, other) => decided(one.value(row), other.value(row), false),
            Self::Or(one, other) => decided(one.value(row), other.value(row), true),
        }
    }

    fn holds(&self, row: &Row) -> bool {
        self.value(row) == Some(true)
    }
}

/// The value of `AND` or `OR`: one of the operands decides it if it is `deciding`.
fn decided(one: Option<bool>, other: Option<bool>, deciding: bool) -> Option<bool> {
    match (one, other) {
        (Some(value), _) | (_, Some(value)) if value == deciding => Some(deciding),
        (Some(_), Some(_)) => Some(!deciding),
        _ => None,
    }
}

/// Returns a statement and the number of rows that it changes, and changes the rows of the model by it.
fn statement(random: &mut Random, rows: &mut Vec<Row>) -> (String, u64) {
    let kind = if rows.len() > ROWS_MAX { 4 } else { random.below(9) };
    let predicate = Predicate::random(random, 2);
    match kind {
        0 | 1 => inserted(random, rows),
        2 => {
            let more: Vec<Row> = rows.iter().filter(|row| predicate.holds(row)).cloned().collect();
            let more: Vec<Row> = more.into_iter().map(|row| Row { id: row.id + 1, ..row }).collect();
            rows.extend(more.iter().cloned());
            let sql = format!("INSERT INTO t (name, x, id) SELECT name, x, id + 1 FROM t WHERE {}", predicate.sql());
            (sql, more.len() as u64)
        }
        3 => {
            let (added, name, mut num_rows) = (random.below(50), random.name(), 0);
            for row in rows.iter_mut().filter(|row| predicate.holds(row)) {
                (row.x, row.name) = (Some(row.x.unwrap_or(-1) + added), name);
                num_rows += 1;
            }
            let (name, predicate) = (text(name), predicate.sql());
            (format!("UPDATE t SET x = coalesce(x, -1) + {added}, name = {name} WHERE {predicate}"), num_rows)
        }
        4 => {
            let before = rows.len();
            rows.retain(|row| !predicate.holds(row));
            (format!("DELETE FROM t WHERE {}", predicate.sql()), (before - rows.len()) as u64)
        }
        5 => updated_from(random, rows, &predicate),
        6 => {
            let (before, source) = (rows.len(), sources(random));
            rows.retain(|row| !(predicate.holds(row) && source.contains_key(&row.id)));
            let ids = source.keys().map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
            let sql = format!(
                "DELETE FROM t WHERE ({}) AND t.id IN (SELECT v.id FROM (VALUES {ids}) AS v (id))",
                predicate.sql()
            );
            (sql, (before - rows.len()) as u64)
        }
        _ => merged(random, rows, &predicate),
    }
}

fn inserted(random: &mut Random, rows: &mut Vec<Row>) -> (String, u64) {
    let num_rows = 1 + random.below(12);
    let new: Vec<Row> = (0..num_rows)
        .map(|_| {
            let id = random.below(60);
            Row::random(random, id)
        })
        .collect();
    rows.extend(new.iter().cloned());
    (format!("INSERT INTO t VALUES {}", list(&new)), new.len() as u64)
}

/// Rows of a source, with different ids. None of their numbers is NULL.
fn sources(random: &mut Random) -> BTreeMap<i64, Row> {
    let num_rows = 1 + random.below(25);
    let mut rows = BTreeMap::new();
    for _ in 0..num_rows {
        let id = random.below(70);
        rows.insert(id, Row { id, x: Some(random.below(100)), name: random.name() });
    }
    rows
}

fn updated_from(random: &mut Random, rows: &mut [Row], predicate: &Predicate) -> (String, u64) {
    let (source, mut num_rows) = (sources(random), 0);
    for row in rows.iter_mut().filter(|row| predicate.holds(row)) {
        let Some(found) = source.get(&row.id) else { continue };
        (row.x, row.name) = (row.x.zip(found.x).map(|(x, y)| x - y), found.name);
        num_rows += 1;
    }
    let values = list(&source.into_values().collect::<Vec<_>>());
    let sql = format!(
        "UPDATE t SET x = t.x - v.y, name = v.name FROM (VALUES {values}) AS v (id, y, name) \
         WHERE v.id = t.id AND ({})",
        predicate.sql()
    );
    (sql, num_rows)
}

fn merged(random: &mut Random, rows: &mut Vec<Row>, predicate: &Predicate) -> (String, u64) {
    let (source, bound, mut num_rows) = (sources(random), random.below(100), 0);
    let (updates_others, inserts_others) = (random.below(2) == 0, random.below(2) == 0);
    let known: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let mut kept = Vec::new();
    for row in rows.drain(..) {
        let Some(found) = source.get(&row.id) else {
            kept.push(row);
            continue;
        };
        num_rows += 1;
        if predicate.holds(&row) {
            continue;
        }
        if found.x.is_some_and(|y| y >= bound) {
            kept.push(Row { x: row.x.zip(found.x).map(|(x, y)| x + y), ..row });
        } else if updates_others {
            kept.push(Row { name: found.name, ..row });
        } else {
            kept.push(row);
            num_rows -= 1;
        }
    }
    for (id, found) in source.iter().filter(|(id, _)| !known.contains(id)) {
        if found.name.is_none() {
            kept.push(Row { id: *id, x: None, name: Some("new") });
        } else if inserts_others {
            kept.push(found.clone());
        } else {
            continue;
        }
        num_rows += 1;
    }
    *rows = kept;
    let values = list(&source.into_values().collect::<Vec<_>>());
    let mut sql = format!(
        "MERGE INTO t USING (VALUES {values}) AS v (id, y, name) ON t.id = v.id WHEN MATCHED AND ({}) THEN DELETE \
         WHEN MATCHED AND v.y >= {bound} THEN UPDATE SET x = t.x + v.y \
         WHEN NOT MATCHED AND v.name IS NULL THEN INSERT (id, name) VALUES (v.id, 'new')",
        predicate.sql()
    );
    if updates_others {
        sql += " WHEN MATCHED THEN UPDATE SET name = v.name";
    }
    if inserts_others {
        sql += " WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.y, v.name)";
    }
    (sql, num_rows)
}

async fn rows_at(lake: &Fixture, version: u64) -> Vec<String> {
    let mut rows = shown(lake, &format!("SELECT id, x, name FROM t AT (VERSION => {version})")).await;
    rows.sort();
    rows
}

#[tokio::test]
async fn random_statements_do_what_a_model_does() {
    for seed in 0..4 {
        let (lake, mut random, mut rows) = (Fixture::new(3).await, Random(seed), Vec::new());
        lake.done("CREATE TABLE t (id BIGINT NOT NULL, x BIGINT, name TEXT)").await;
        let mut versions = BTreeMap::new();
        for number in 0..STATEMENTS {
            let (sql, num_rows) = statement(&mut random, &mut rows);
            let outcome = lake.done(&sql).await;
            assert_eq!(outcome.num_rows, Some(num_rows), "seed {seed}, statement {number}: {sql}");
            let mut expected: Vec<String> = rows.iter().map(Row::shown).collect();
            expected.sort();
            let version = table(&lake, "t").await.version();
            assert_eq!(outcome.version, Some(version), "seed {seed}, statement {number}: {sql}");
            assert_eq!(rows_at(&lake, version).await, expected, "seed {seed}, statement {number}: {sql}");
            versions.insert(version, expected);
        }
        assert!(versions.len() > STATEMENTS / 2, "seed {seed}: most statements change something");
        for (version, expected) in versions {
            assert_eq!(rows_at(&lake, version).await, expected, "seed {seed}: version {version} stays as it was");
        }
    }
}
