//! Tests of lakes and tables, on local and in-memory lakes.

mod blobs;
mod changes;
mod checksums;
mod commits;
mod compact;
mod damage;
pub(crate) mod data;
mod delete_rows;
mod dense;
mod indexes;
mod layout;
mod light_damage;
mod lineage;
mod lists;
mod objects;
mod reading;
mod texts;
mod threads;
mod uris;
mod versions;
mod writing;
