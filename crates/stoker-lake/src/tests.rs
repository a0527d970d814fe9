//! Tests of lakes and tables, on local and in-memory lakes.

mod commits;
mod damage;
mod data;
mod dense;
mod indexes;
mod layout;
mod objects;
mod reading;
mod threads;
mod uris;
mod versions;
mod writing;
