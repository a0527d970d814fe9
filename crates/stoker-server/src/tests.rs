//! Tests of the service.

mod answer_bodies;
mod authority_filter;
mod bad_images;
mod budget;
mod contracts;
pub(crate) mod fixture;
mod flight_sql;
mod outages;
mod polls;
mod replicas;
mod requests;
mod sessions;
mod statuses;
mod streams;
mod unix_sockets;
mod writes;
