//! Tests of lakes and tables, on local and in-memory lakes.

mod checksums;
mod commits;
mod damage;
pub(crate) mod data;
mod dense;
mod indexes;
mod layout;
mod light_damage;
mod lineage;
mod objects;
mod quarantine;
mod reading;
mod threads;
mod uris;
mod versions;
mod writing;
