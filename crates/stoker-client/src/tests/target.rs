//! Which targets name servers, and the options that are not for them.

use stoker_session::Error;

use crate::{LakeOptionsGiven, names_servers};

const NONE: LakeOptionsGiven = LakeOptionsGiven { cache_dir: false, direct_io: false, hold_days: false };

#[test]
fn servers_and_lakes_are_told_apart() -> Result<(), Error> {
    for servers in ["grpc://a:1", "grpc+tls://a:1,b:2", "unix:///run/stoker.sock"] {
        assert!(names_servers(servers, NONE)?, "{servers}");
    }
    let all = LakeOptionsGiven { cache_dir: true, direct_io: true, hold_days: true };
    for lake in ["lake", "/data/lake", "s3://bucket/lake", "memory://"] {
        assert!(!names_servers(lake, all)?, "{lake}");
    }
    Ok(())
}

#[test]
fn servers_refuse_options_of_lakes() {
    let given = [
        (LakeOptionsGiven { cache_dir: true, ..NONE }, "cache_dir is for lakes", "`stoker serve --cache-dir`"),
        (LakeOptionsGiven { direct_io: true, ..NONE }, "direct_io is for lakes", "`stoker serve --direct-io`"),
        (LakeOptionsGiven { hold_days: true, ..NONE }, "hold_days is for lakes", "`stoker serve --hold-days`"),
    ];
    for (given, option, remedy) in given {
        let message = names_servers("grpc://a:1", given).map_err(|refused| refused.to_string());
        assert!(message.as_ref().is_err_and(|text| text.contains(option) && text.contains(remedy)), "{message:?}");
    }
}
