//! Tests of the service.

mod contracts;
mod endpoints;
mod fixture;
mod messages;
mod replicas;
mod requests;
mod statuses;
mod streams;
mod tickets;
