//! Tests with frames written by `moby/spdystream`, and the server's responses.

use std::sync::Arc;

use rstest::rstest;

use super::*;

/// Streams 1 (errors) and 3 (data) of connection 0 to port 8080, compressed with the dictionary, and `GET /` as data.
const FRAMES: &str = include_str!("../../../../tests/data/port_forward.hex");

fn frames() -> [&'static str; 3] {
    let frames: Vec<&str> = FRAMES.lines().collect();
    frames.try_into().expect("the text has three frames")
}

/// The replies to `FRAMES`: SYN_REPLY frames with empty header blocks, in stored (uncompressed) deflate blocks.
const REPLIES: &str = "8003000200000014000000017801000400fbff00000000000000ffff\
                       800300020000001200000003000400fbff00000000000000ffff";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|it| !it.is_ascii_whitespace()).collect();
    let byte = |it: &[u8]| {
        u8::from_str_radix(std::str::from_utf8(it).expect("the text consists of digits"), 16)
            .expect("the text consists of digits")
    };
    digits.chunks(2).map(byte).collect()
}

fn session(port: u16) -> Session {
    let handler: PortHandler = Arc::new(|received| (received == b"GET /").then(|| b"hello".to_vec()));
    Session::new(Service::Ports([(port, handler)].into()))
}

/// Returns all responses to frames that arrive in pieces of this size.
fn answers(session: &mut Session, frames: &[&str], size: usize) -> Result<Vec<u8>, Gone> {
    let all: Vec<u8> = frames.iter().flat_map(|it| bytes(it)).collect();
    let answers = all.chunks(size).map(|it| session.receive(it));
    Ok(answers.collect::<Result<Vec<_>, _>>()?.concat())
}

#[rstest]
fn forwarded_port_responds_and_closes_its_streams(#[values(1, 7, 1_000)] size: usize) {
    let found = answers(&mut session(8080), &frames(), size).expect("the frames are valid SPDY");
    let ends = "000000030000000568656c6c6f 0000000301000000 0000000101000000";
    assert_eq!(found, bytes(&format!("{REPLIES}{ends}")));
}

#[test]
fn closed_port_is_reported_on_the_error_stream() {
    let found = answers(&mut session(80), &frames()[..2], 1_000).expect("the frames are valid SPDY");
    let text = String::from_utf8_lossy(&found).into_owned();
    assert!(
        text.contains("an error occurred forwarding 8080: connection refused"),
        "{text}"
    );
    assert!(found.ends_with(&bytes("0000000101000000")));
}

#[rstest]
#[case::ping("800300060000000400000001", "800300060000000400000001")]
#[case::response_to_a_ping("800300060000000400000002", "")]
#[case::goaway("80030007000000080000000000000000", "")]
#[case::settings("800300040000000400000000", "")]
#[case::data_for_an_unknown_stream("0000000300000005474554202f", "")]
fn only_pings_from_the_client_receive_a_response(#[case] frame: &str, #[case] answer: &str) {
    let found = session(8080).receive(&bytes(frame)).expect("the frames are valid SPDY");
    assert_eq!(found, bytes(answer));
}

#[rstest]
#[case::unsupported_version("800200060000000400000001")]
#[case::long_control_frame("8003000100ffffff")]
#[case::not_spdy("ffffffffffffffff")]
#[case::truncated_ping("80030006000000020000")]
#[case::truncated_syn_stream("80030001000000020000")]
#[case::headers_not_compressed_with_zlib("800300010000000d00000001000000000000ffffff")]
#[case::truncated_zlib_header("800300010000000b0000000100000000000078")]
fn invalid_bytes_end_the_connection(#[case] frame: &str) {
    assert!(session(8080).receive(&bytes(frame)).is_err());
}

#[test]
fn reset_stream_is_removed() {
    let mut session = session(8080);
    let reset = "80030003000000080000000300000005";
    let [errors, data, get] = frames();
    let found = answers(&mut session, &[errors, data, reset, get], 1_000).expect("the frames are valid SPDY");
    assert_eq!(found, bytes(REPLIES));
}

#[test]
fn all_frames_of_one_read_are_processed() {
    const PINGS: usize = 500_000;
    let frame = bytes("800300060000000400000001");
    let found = session(8080)
        .receive(&frame.repeat(PINGS))
        .expect("the frames are valid SPDY");
    assert_eq!(found.len(), PINGS * frame.len());
}

#[test]
fn port_handler_receives_all_data_until_it_responds() {
    let handler: PortHandler = Arc::new(|received| (received != b"GE").then(|| received.to_vec()));
    let mut session = Session::new(Service::Ports([(8080, handler)].into()));
    let [errors, data, _] = frames();
    let found = answers(
        &mut session,
        &[errors, data, "00000003000000024745", "00000003000000025420"],
        1_000,
    );
    let ends = "0000000300000004 47455420 0000000301000000 0000000101000000";
    assert_eq!(
        found.expect("the frames are valid SPDY"),
        bytes(&format!("{REPLIES}{ends}"))
    );
}

#[test]
fn spdy_input_is_bounded() {
    let mut session = session(8080);
    let [errors, data, _] = frames();
    answers(&mut session, &[errors, data], 1_000).expect("the frames are valid SPDY");
    let frame = [bytes("0000000300100000"), vec![b'x'; 1 << 20]].concat();
    let taken = (0..).take_while(|_| session.receive(&frame).is_ok()).count();
    assert_eq!(taken, INPUT_BYTES_MAX / (1 << 20) - 1);
}

/// Frames with a few changed bytes either end the connection or get a response.
#[test]
fn mutated_frames_do_not_panic() {
    let whole: Vec<u8> = frames().iter().flat_map(|it| bytes(it)).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits fit into a usize") % below
    };
    for _ in 0..20_000 {
        let mut sent = whole.clone();
        for _ in 0..=random(4) {
            let (at, value) = (random(sent.len()), random(256));
            sent[at] = u8::try_from(value).expect("the value fits into a byte");
        }
        sent.truncate(sent.len() - random(sent.len() / 2));
        let mut session = session(8080);
        for piece in sent.chunks(1 + random(200)) {
            if session.receive(piece).is_err() {
                break;
            }
            assert!(session.pending.len() <= sent.len());
        }
    }
}
