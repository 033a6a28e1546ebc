use std::{io::BufRead, net::TcpListener, thread};

use super::*;

/// Answers each request of one connection with the next of `answers`, byte by byte if `slow`.
fn serve(answers: Vec<&'static str>, slow: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        let mut lines = io::BufReader::new(stream.try_clone().unwrap()).lines();
        for answer in answers {
            while !lines.next().unwrap().unwrap().is_empty() {}
            for piece in answer.as_bytes().chunks(if slow { 1 } else { usize::MAX }) {
                stream.write_all(piece).unwrap();
            }
        }
    });
    address
}

fn ask_all(answers: Vec<&'static str>, slow: bool) -> Vec<io::Result<Answer>> {
    let count = answers.len();
    let mut connection = Connection::open(serve(answers, slow), Duration::from_secs(10)).unwrap();
    (0..count).map(|_| connection.ask("GET", "/", b"")).collect()
}

#[test]
fn answers_with_a_length_and_in_chunks_are_read_whole_on_one_connection() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n7\n";
    let chunks = "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let empty = "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n";
    for slow in [false, true] {
        let answers = ask_all(vec![length, chunks, empty, length], slow);
        let seen: Vec<_> =
            answers.iter().map(|a| a.as_ref().map(|a| (a.status, a.text())).unwrap()).collect();
        let expected = [(200, "7"), (500, "abcde"), (404, ""), (200, "7")];
        assert_eq!(seen, expected.map(|(status, text)| (status, text.to_owned())));
    }
}

#[test]
fn an_answer_that_is_cut_or_unclear_is_an_error() {
    for (answer, kind) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc", io::ErrorKind::UnexpectedEof),
        ("HTTP/1.1 200 OK\r\n\r\n", io::ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", io::ErrorKind::InvalidData),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", io::ErrorKind::InvalidData),
        ("no HTTP at all\r\n\r\n", io::ErrorKind::InvalidData),
    ] {
        let error = ask_all(vec![answer], false).remove(0).unwrap_err();
        assert_eq!(error.kind(), kind, "{answer:?}: {error}");
    }
}
