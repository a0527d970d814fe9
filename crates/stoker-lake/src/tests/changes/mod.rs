//! Tests of changes of rows, of columns and of whole tables.

mod columns;
mod compared;
mod counters;
mod indexed;
mod model;
mod new_columns;
mod whole_tables;
