//! Tests of what is said about tables with a known layout.

mod data;
mod describe;
mod doctor;
mod threads;
