// Decodes Avro in Confluent's frames with arrow-avro, and prints the least CPU nanoseconds of some rounds.
//
//     avro-peer FILE ROUNDS       FILE: the schema and then the values, each behind its length (u32, little-endian)
use arrow_avro::reader::ReaderBuilder;
use arrow_avro::schema::{AvroSchema, Fingerprint, FingerprintAlgorithm, SchemaStore};

const ID: u32 = 7;

fn cpu_nanoseconds() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn next<'a>(data: &'a [u8], at: &mut usize) -> &'a [u8] {
    let size = u32::from_le_bytes(data[*at..*at + 4].try_into().unwrap()) as usize;
    *at += 4 + size;
    &data[*at - size..*at]
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let data = std::fs::read(&arguments[1]).unwrap();
    let mut at = 0;
    let schema = std::str::from_utf8(next(&data, &mut at)).unwrap().to_string();
    let mut values = Vec::new();
    while at < data.len() {
        values.push(next(&data, &mut at));
    }
    let mut least = i64::MAX;
    for _ in 0..arguments[2].parse::<usize>().unwrap() {
        let mut store = SchemaStore::new_with_type(FingerprintAlgorithm::Id);
        store.set(Fingerprint::Id(ID), AvroSchema::new(schema.clone())).unwrap();
        let mut decoder = ReaderBuilder::new()
            .with_writer_schema_store(store)
            .with_active_fingerprint(Fingerprint::Id(ID))
            .with_batch_size(values.len())
            .build_decoder()
            .unwrap();
        let begin = cpu_nanoseconds();
        for value in &values {
            decoder.decode(value).unwrap();
        }
        let batch = decoder.flush().unwrap().unwrap();
        least = least.min(cpu_nanoseconds() - begin);
        assert_eq!(batch.num_rows(), values.len());
    }
    println!("{least}");
}
