//! Compressed headers.

use super::{BadBlock, Decoder};

pub fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, hex: &str) -> Result<String, BadBlock> {
    let line = |(name, value): (bytes::Bytes, bytes::Bytes)| {
        format!("{}: {}\n", String::from_utf8_lossy(&name), String::from_utf8_lossy(&value))
    };
    Ok(decoder.decode(&bytes(hex))?.into_iter().map(line).collect())
}

/// The examples of <https://www.rfc-editor.org/rfc/rfc7541#appendix-C.6> decode as specified, in a table of 256 bytes.
#[test]
fn the_examples_of_the_standard() {
    let resized = "3fe101";
    let mut plain = Decoder::new();
    let mut coded = Decoder::new();
    let first = ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n";
    let block = "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e\
                 1768747470733a2f2f7777772e6578616d706c652e636f6d";
    assert_eq!(decode(&mut plain, &format!("{resized}{block}")).expect("headers"), first);
    let block =
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3";
    assert_eq!(decode(&mut coded, &format!("{resized}{block}")).expect("headers"), first);

    let second = first.replace("302", "307");
    assert_eq!(decode(&mut plain, "4803333037c1c0bf").expect("headers"), second);
    assert_eq!(decode(&mut coded, "4883640effc1c0bf").expect("headers"), second);

    let third = ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n\
                 content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n";
    let block = "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d\
                 4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31";
    assert_eq!(decode(&mut plain, block).expect("headers"), third);
    let block = "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af\
                 27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
    assert_eq!(decode(&mut coded, block).expect("headers"), third);
}

/// A string of all bytes in their order, in the codes of <https://www.rfc-editor.org/rfc/rfc7541#appendix-B>.
pub const ALL_BYTES: &str = "\
        000161ffc803ffc7fffd8fffffe2fffffe3fffffe4fffffe5fffffe6fffffe7fffffe8ffffeafffffff3fffffa7fffffabff\
        ffffdfffffebfffffecfffffedfffffeefffffefffffff0ffffff1ffffff2fffffffbfffffcffffffd3fffffd7fffffdbfff\
        ffdffffffe3fffffe7fffffebfffffed4fe3f9ffaffcabf1febfafefe7fdfd2cbb00089969b71d79fb9f7fff20ffbff3ff50\
        ddbd7f061c58f265cd9f469d5af66dddbf871e5f9cff7ff7fffc3ff9ffe45fff4719242cb34e6e9d68a6a3d7dac426defe3c\
        faf7fffbfe7ffbffdffffffcfffe6ffff4bfff9ffffa3fffd3ffff53fffd5ffffb3fffeb7fffdaffffb7ffff73fffeeffffd\
        effffebffffbfffffd9ffffdbfffebffffe0ffffeeffffc3ffff8bffff1ffffe4fffee7fffb1ffff97fffd9ffffcdffff9ff\
        fffbffffdafffeeffff4ffffb7fffee7fffe8ffffd3fffdeffffd5fffeeffffbdffffe1fffdfffff7fffff5ffffecffff07f\
        ff87fffe0ffff17fffedffff87ffff77fffeffffeaffff8bfffe3ffff93ffff87fffcbffff37ffff1fffff83ffffe1fffebf\
        ffe3ffff3fffff2ffffa3ffffd9fffff17ffffc7fffff27ffffdefffffbffffff2fffff8fffffb7fff97fff8fffffe6fffff\
        c1fffff87ffffe7fffffc5ffffe5fffe4ffff2fffffd1fffff4ffffffefffffe3fffffc9fffff97fffb3ffffcffffb7fffcd\
        ffff4ffff9ffffd1ffffcffffeaffffafffffddffffeffffff4fffff5fffffabffffa7ffffd7fffff9bffffecfffffb7ffff\
        f3fffffe8fffffd3fffffabfffff5fffffff7ffffecfffffdbfffffbbfffff7ffffff0fffffbbf";

#[test]
fn every_byte_has_a_code() {
    let fields = Decoder::new().decode(&bytes(ALL_BYTES)).expect("headers");
    assert_eq!(fields, [("a".into(), (0..=255).collect::<Vec<u8>>().into())]);
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    for (hex, reason) in [
        ("80", BadBlock::Index),
        ("be", BadBlock::Index),
        ("ffffffff7f", BadBlock::Number),
        ("7f", BadBlock::CutOff),
        ("00", BadBlock::CutOff),
        ("000161", BadBlock::CutOff),
        ("0001610562", BadBlock::CutOff),
        ("3fe21f", BadBlock::Resize),
        ("8820", BadBlock::Resize),
        // The code that ends a string, padding of a whole byte, and padding with zeros.
        ("00016184ffffffff", BadBlock::Code),
        ("00016182 1fff", BadBlock::Code),
        ("00016181 18", BadBlock::Code),
    ] {
        assert_eq!(decode(&mut Decoder::new(), hex), Err(reason), "{hex}");
    }
}

#[test]
fn the_table_keeps_the_newest_fields_that_fit() {
    let mut decoder = Decoder::new();
    // The table of 68 bytes holds two fields of 34 bytes; then a third field comes.
    decode(&mut decoder, "3f25 4001610131 4001620132").expect("headers");
    assert_eq!(decode(&mut decoder, "bebf").expect("headers"), "b: 2\na: 1\n");
    decode(&mut decoder, "4001630133").expect("headers");
    assert_eq!(decode(&mut decoder, "bebf").expect("headers"), "c: 3\nb: 2\n");
    assert_eq!(decode(&mut decoder, "c0"), Err(BadBlock::Index));
    decode(&mut decoder, "20").expect("no headers");
    assert_eq!(decode(&mut decoder, "be"), Err(BadBlock::Index));
}
