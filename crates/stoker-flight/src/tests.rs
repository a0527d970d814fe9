//! Tests of the service.

mod authority_filter;
mod bad_images;
mod budget;
mod compression;
mod contracts;
mod endpoints;
mod fixture;
mod http2;
mod messages;
mod outages;
mod replicas;
mod requests;
mod sessions;
mod statuses;
mod streams;
mod tickets;
mod unix_sockets;
