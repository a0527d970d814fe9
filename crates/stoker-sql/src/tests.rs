//! Tests over a small lake on disk.

mod at_clause;
mod catalog;
mod description;
mod explained;
mod fixture;
mod functions;
mod guards;
mod lift;
mod limits;
mod order_by_distance;
mod params;
mod plain_sql;
mod row_sets;
mod row_source;
mod text_search;
mod vector_search;
mod views;
