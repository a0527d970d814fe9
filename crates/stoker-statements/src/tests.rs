//! Tests of statements, on a lake in memory.

mod computed;
mod dictionaries;
mod fixture;
mod indexes;
mod random_writes;
mod table_writes;
mod writes;
