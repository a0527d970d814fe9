//! The clips of a request.

use stoker_types::{ClipStart, ColumnClip, ErrorKind};

use crate::convert::{CLIP_COLUMNS_MAX, clips_from_proto};
use crate::proto::ReadPolicy;

fn clips(number: usize) -> Vec<ColumnClip> {
    let clip = |column: usize| ColumnClip {
        column: format!("video{column}"),
        frames: 2,
        stride: 1,
        start: ClipStart::Random,
        offsets: None,
        within: None,
    };
    (0..number).map(clip).collect()
}

#[test]
fn requests_name_the_clips_of_few_columns() {
    assert!(clips_from_proto(None).expect("no clips").is_empty());
    let of_request = |number| clips_from_proto(Some(&ReadPolicy::default().with_clips(&clips(number))));
    assert_eq!(of_request(CLIP_COLUMNS_MAX).expect("clips"), clips(CLIP_COLUMNS_MAX));
    // Whole files are sent of the others.
    assert_eq!(of_request(CLIP_COLUMNS_MAX + 1).expect("clips"), clips(CLIP_COLUMNS_MAX));
}

#[test]
fn requests_with_the_clips_of_too_many_columns_are_refused() {
    let mut policy = ReadPolicy::default().with_clips(&clips(CLIP_COLUMNS_MAX));
    policy.clips.extend_from_within(..1);
    let error = clips_from_proto(Some(&policy)).expect_err("too many columns");
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(error.to_string(), "clips of 9 columns are requested; the most is 8");
}
