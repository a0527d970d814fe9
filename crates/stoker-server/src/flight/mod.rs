//! The door for Arrow Flight: it reads requests, asks the server's state, and writes answers.

mod answer_body;
mod do_action;
mod do_get;
mod flight_service;
mod get_flight_info;
mod output;
mod put_rows;
mod service;
mod status;

#[cfg(test)]
pub(crate) use answer_body::{Answer, AnswerBody, Item};
pub(crate) use do_action::outcome_unknown;
pub(crate) use get_flight_info::Poll;
pub(crate) use service::StokerService;
pub(crate) use status::status;
