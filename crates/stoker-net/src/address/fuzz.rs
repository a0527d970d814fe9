//! Targets as users may write them.

use std::os::unix::net::SocketAddr;

use stoker_fuzz::Target;

use crate::Address;
use crate::http2::Server;

/// Returns a target with the same addresses.
fn target(addresses: &[Address]) -> String {
    let one = |address: &Address| match address {
        Address::Tcp { tls: false, .. } => format!("grpc://{address}"),
        Address::Tcp { tls: true, .. } => format!("grpc+tls://{address}"),
        Address::Unix(_) => address.to_string(),
    };
    addresses.iter().map(one).collect::<Vec<_>>().join(",")
}

#[test]
fn any_target_is_refused_or_has_the_same_addresses_again() {
    let seeds = [
        "grpc://a:1/, b:2,,",
        "grpc+tls://[::1]:1,b",
        "unix:///run/a b,/run/c",
        "grpc+unix:/run/a,grpc+tls://b:2,c:3,grpc://d:4",
    ];
    let tokens =
        ["grpc://", "grpc+tls://", "unix:", "unix://", "grpc+unix:", "://", "/", ",", " ", "\0", "@", "\u{a0}"];
    let seeds = seeds.map(|seed| seed.as_bytes().to_vec());
    Target::new("addresses").seeds(seeds).tokens(tokens).run(|input| {
        let Ok(Some(addresses)) = Address::parse_all(&String::from_utf8_lossy(input)) else { return false };
        let text = target(&addresses);
        assert_eq!(Address::parse_all(&text), Ok(Some(addresses.clone())), "{text:?}");
        for address in &addresses {
            drop(Server::try_new(address, None));
            if let Address::Unix(path) = address {
                assert!(SocketAddr::from_pathname(path).is_ok(), "{path}");
            }
        }
        true
    });
}
