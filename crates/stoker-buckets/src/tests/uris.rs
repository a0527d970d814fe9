//! URIs of sources.

use crate::{Error, SourceUri};

#[test]
fn uris_are_divided_into_buckets_and_keys() {
    for (uri, root, key, names_folder) in [
        ("s3://bucket/a/b.tar", "s3://bucket", "a/b.tar", false),
        ("s3://bucket/a/b/", "s3://bucket", "a/b", true),
        ("gs://bucket", "gs://bucket", "", true),
        ("az://container/with space#1", "az://container", "with space#1", false),
        ("abfss://c@account.dfs.core.windows.net/a", "abfss://c@account.dfs.core.windows.net", "a", false),
        ("https://host:8443/a/b.csv?sig=x", "https://host:8443", "a/b.csv", false),
    ] {
        let found = SourceUri::parse(uri).unwrap();
        assert_eq!((found.root.as_str(), found.key.as_str(), found.names_folder), (root, key, names_folder), "{uri}");
        assert_eq!(found.is_website(), uri.starts_with("https"));
    }
    assert!(SourceUri::is_uri("s3://b") && !SourceUri::is_uri("./s3:/b"));
}

#[test]
fn other_uris_are_refused_with_what_would_be_right() {
    for (uri, said) in [
        ("ftp://host/a", "scheme 'ftp' is not supported"),
        ("s3://", "the bucket is missing"),
        ("s3://key:secret@bucket/a", "must not contain credentials"),
        ("s3://bucket/a?x=1", "has a query"),
        ("abfss://container/a", "abfss://CONTAINER@ACCOUNT"),
        ("https://me:secret@host/a", "must not contain credentials"),
        ("https://host/folder/", "a folder of a web server cannot be listed"),
        ("https://host", "a folder of a web server cannot be listed"),
    ] {
        let Err(Error::Invalid { reason }) = SourceUri::parse(uri) else { panic!("{uri} was accepted") };
        assert!(reason.contains(said) && !reason.contains("secret@"), "{uri}: {reason}");
    }
}
