//! Tests of the service.

mod budget;
mod compression;
mod contracts;
mod endpoints;
mod fixture;
mod http2;
mod messages;
mod replicas;
mod requests;
mod statuses;
mod streams;
mod tickets;
