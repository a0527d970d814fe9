//! Tests of lakes and tables.
