//! Tests of ingests.
