//! Statements are described before their parameters have values.

use arrow_schema::{DataType, Fields};

use super::fixture::Fixture;
use crate::{Error, StatementDescription};

/// Names with their types.
type Types = Vec<(String, DataType)>;

fn shown(found: &StatementDescription) -> (Types, Types) {
    let of = |fields: &Fields| fields.iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
    (of(found.columns.fields()), of(&found.parameters.clone().into()))
}

#[tokio::test]
async fn columns_and_parameters_have_the_types_of_the_statement() {
    let fixture = Fixture::new().await;
    let vector = fixture.engine.describe("SELECT emb FROM samples").await.expect("a description");
    let vector = vector.columns.field(0).data_type().clone();
    let cases = [
        ("SELECT 1 AS one", vec![("one", DataType::Int64)], vec![]),
        ("SELECT id FROM samples WHERE label < $1", vec![("id", DataType::Int64)], vec![DataType::Int64]),
        ("SELECT name FROM samples WHERE name = ? AND id > ?", vec![("name", DataType::Utf8)], {
            vec![DataType::Utf8, DataType::Int64]
        }),
        ("SELECT id FROM samples WHERE id IN ($1, $2)", vec![("id", DataType::Int64)], {
            vec![DataType::Int64, DataType::Int64]
        }),
        ("SELECT count(*) AS n FROM samples AT (VERSION => $1)", vec![("n", DataType::Int64)], vec![DataType::Int64]),
        (
            "SELECT id, _distance FROM vector_search(samples, emb, $1, k => $2) WHERE label = $3",
            vec![("id", DataType::Int64), ("_distance", DataType::Float32)],
            vec![vector.clone(), DataType::Int64, DataType::Int64],
        ),
        (
            "SELECT id FROM vector_search(samples, emb, (SELECT emb FROM samples WHERE id = $1), k => $2)",
            vec![("id", DataType::Int64)],
            vec![DataType::Int64, DataType::Int64],
        ),
        ("SELECT id FROM samples WHERE label = $1 OR name = $1 LIMIT $2", vec![("id", DataType::Int64)], {
            vec![DataType::Int64, DataType::Int64]
        }),
        ("SELECT id FROM samples ORDER BY emb <-> $1 LIMIT 3", vec![("id", DataType::Int64)], vec![vector.clone()]),
        ("SELECT id FROM samples WHERE l2_distance($1, emb) < $2", vec![("id", DataType::Int64)], {
            vec![vector.clone(), DataType::Float32]
        }),
        ("SELECT l2_distance(emb, [1.0, $1, 2.0, 3.0]) AS d FROM samples", vec![("d", DataType::Float32)], {
            vec![DataType::Utf8]
        }),
    ];
    for (sql, columns, parameters) in cases {
        let found = shown(&fixture.engine.describe(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")));
        let columns: Types = columns.into_iter().map(|(name, data_type)| (name.to_string(), data_type)).collect();
        let parameters: Types =
            parameters.into_iter().enumerate().map(|(index, found)| (format!("${}", index + 1), found)).collect();
        assert_eq!(found, (columns, parameters), "{sql}");
    }
}

#[tokio::test]
async fn a_description_fails_where_the_statement_does() {
    let fixture = Fixture::new().await;
    for (sql, part) in [
        ("SELECT nothing FROM samples WHERE id = $1", "nothing"),
        ("SELECT * FROM missing WHERE id = $1", "missing"),
        ("SELECT $2", "parameter $1 is not used"),
        ("SELECT $70000", "parameter $70000"),
        ("SELECT * FROM vector_search(samples, label, $1)", "not a vector"),
        ("DELETE FROM samples WHERE id = $1", "not allowed"),
    ] {
        let error: Error = fixture.engine.describe(sql).await.expect_err(sql);
        assert!(error.to_string().contains(part), "{sql}: {error}");
    }
}
