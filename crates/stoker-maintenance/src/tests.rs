//! Tests of what is said about tables with a known layout, and of excluded rows.

mod data;
mod describe;
mod doctor;
mod quarantine;
mod threads;
