//! Breaks down the time of steps, for people and for programs.

use serde_json::{Map, Value, json};
use stoker_types::Stalls;

/// Returns a line such as `storage 61 %, decode 4 %, consumer 35 %`, without the parts that round to 0 %.
pub fn line(stalls: &Stalls) -> String {
    let percent = |time| (stalls.share(time) * 100.0).round();
    let parts = stalls.named().map(|(name, time)| (name, percent(time)));
    let shown = parts.into_iter().filter(|(_, percent)| *percent > 0.0);
    shown.map(|(name, percent)| format!("{name} {percent} %")).collect::<Vec<_>>().join(", ")
}

/// Returns the seconds and the share, from 0 to 1, of each part.
pub fn object(stalls: &Stalls) -> Value {
    let part = |(name, time): (&str, std::time::Duration)| {
        (name.to_string(), json!({ "secs": time.as_secs_f64(), "share": stalls.share(time) }))
    };
    Value::Object(stalls.named().into_iter().map(part).collect::<Map<String, Value>>())
}
