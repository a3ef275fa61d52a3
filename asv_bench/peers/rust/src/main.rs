//! Decodes a segment that is in memory: answers each line on stdin with "nanoseconds records value_bytes" (-1: not seen).
//!
//! krabka  borrowed records, every key and value looked at
//! crc     the checksum of every batch and nothing else

use std::io::{BufRead, Write};

use krabka_protocol::{records::RecordBatchBorrowed, DecodeBorrow};

fn cpu_nanoseconds() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec as i64 * 1_000_000_000 + now.tv_nsec as i64
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn krabka(log: &bytes::Bytes) -> (i64, i64) {
    let (mut n_records, mut value_bytes) = (0, 0);
    let mut rest = &log[..];
    while !rest.is_empty() {
        let batch = RecordBatchBorrowed::decode_borrow(&mut rest, 2).unwrap();
        for record in batch.iter() {
            let record = record.unwrap();
            n_records += 1;
            value_bytes += record.value.as_ref().map_or(0, |value| value.len() as i64);
            std::hint::black_box(&record.key);
        }
    }
    (n_records, value_bytes)
}

fn checksums(log: &bytes::Bytes) -> (i64, i64) {
    let (mut n_records, mut at) = (0, 0);
    while at < log.len() {
        let end = at + 12 + big_endian(log, at + 8) as usize;
        assert_eq!(crc_fast::crc32_iscsi(&log[at + 21..end]), big_endian(log, at + 17));
        n_records += big_endian(log, at + 57) as i64;
        at = end;
    }
    (n_records, -1)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let log = bytes::Bytes::from(std::fs::read(&arguments[2]).unwrap());
    for _ in std::io::stdin().lock().lines() {
        let begin = cpu_nanoseconds();
        let (n_records, value_bytes) = match arguments[1].as_str() {
            "krabka" => krabka(&log),
            "crc" => checksums(&log),
            other => panic!("no such peer: {other}"),
        };
        println!("{} {n_records} {value_bytes}", cpu_nanoseconds() - begin);
        std::io::stdout().flush().unwrap();
    }
}
