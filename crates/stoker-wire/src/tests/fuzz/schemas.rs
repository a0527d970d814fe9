//! Schemas of a server.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, IntervalUnit, Schema, TimeUnit, UnionFields};
use stoker_fuzz::Target;
use stoker_types::ErrorKind;

use crate::decode::{planned_schema, schema_of_answer};
use crate::encode::schema_message;

fn schemas() -> Vec<Schema> {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let item = |data_type: DataType| Arc::new(field("item", data_type));
    let metadata = || HashMap::from([("k".to_string(), "v".to_string())]);
    let entries =
        DataType::Struct(vec![Field::new("key", DataType::Utf8, false), field("value", DataType::Int8)].into());
    let union: UnionFields = [(5, item(DataType::Null)), (7, item(DataType::UInt64))].into_iter().collect();
    let dictionary = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    let runs = DataType::RunEndEncoded(Arc::new(Field::new("run_ends", DataType::Int32, false)), item(DataType::Utf8));
    vec![
        Schema::empty(),
        Schema::new(vec![
            field("id", DataType::Int64),
            field("tensor", DataType::FixedSizeList(item(DataType::Float16), 12)).with_metadata(metadata()),
        ]),
        Schema::new_with_metadata(
            vec![
                field("time", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
                field("day", DataType::Date32),
                field("span", DataType::Interval(IntervalUnit::MonthDayNano)),
                field("price", DataType::Decimal256(40, -3)),
                field("hash", DataType::FixedSizeBinary(20)),
            ],
            metadata(),
        ),
        Schema::new(vec![
            field("map", DataType::Map(Arc::new(Field::new("entries", entries, false)), false)),
            field("union", DataType::Union(union, arrow_schema::UnionMode::Dense)),
            field("word", dictionary),
            field("runs", runs),
            field("views", DataType::ListView(item(DataType::Utf8View))),
        ]),
    ]
}

/// Wraps a message as answers have it: a marker, the length, the message.
fn answer(message: &[u8]) -> Vec<u8> {
    [&[0xff; 4][..], &(message.len() as u32).to_le_bytes(), message].concat()
}

#[test]
fn schemas_are_refused_or_the_same_again() {
    let schemas = schemas();
    let seeds = schemas.iter().map(|schema| schema_message(schema).header.to_vec());
    Target::new("schemas").seeds(seeds).memory_bytes_max(4 << 20).run(|input| {
        let mut is_planned = false;
        for plan in &schemas {
            match planned_schema(input, plan) {
                Ok(Some(found)) => {
                    assert_eq!(found.fields().len(), plan.fields().len());
                    let again = planned_schema(&schema_message(&found).header, &found).expect("a schema");
                    assert_eq!(again.expect("a schema"), found);
                    is_planned = true;
                }
                Ok(None) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Internal, "{error}"),
            }
        }
        match schema_of_answer(&answer(input)) {
            Ok(found) => {
                let again = |schema| schema_of_answer(&answer(&schema_message(schema).header)).expect("a schema");
                let written = again(&found);
                // Arrow writes some types in another form, a time zone without a name for example.
                assert_eq!((written.fields().len(), &written.metadata), (found.fields().len(), &found.metadata));
                assert_eq!(again(&written), written);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
                assert!(!is_planned);
                false
            }
        }
    });
}
