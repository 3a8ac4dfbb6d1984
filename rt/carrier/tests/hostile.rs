//! A host that has the run's secret and sends rubbish: what it may write to stays the rings and the staging areas of its own nodes, each refusal is counted, and the
//! others go on.

use blizzard_carrier::batch::{
    BATCH_BYTES, Batch, BatchWriter, Expected, HEAD_BYTES, MESSAGE_BYTES, Pair, Receipt, SECRET_BYTES, Secret,
};
use blizzard_carrier::carrier::{Carrier, CarrierEvent, CarrierPlan};
use blizzard_carrier::ucx::library::Library;
use blizzard_carrier::ucx::worker::Worker;
use blizzard_contract::{CONTEXT_BYTES, RegionHeader, STAGE_BYTES, STAGE_PIECE_BYTES};
use blizzard_rt::messages::kinds::id::{BLOCK_PUSHES, BULK_STAGED};
use blizzard_rt::transport::message::Message;
use blizzard_test_harness::needs::need_file;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

blizzard_test_harness::tests! { rubbish_reaches_nobody }

const SECRET: Secret = [9; SECRET_BYTES];
/// The nodes of the host under attack, of an honest one and of the hostile one.
const HOSTS: [Range<u16>; 3] = [0..2, 2..4, 4..6];
const NODES: u32 = 6;
const BATCHES: u64 = 3000;
const LIMIT: Duration = Duration::from_secs(60);

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) as usize % end
    }
}

fn region(header: &RegionHeader) -> File {
    let file = File::from(rustix::fs::memfd_create("hostile", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.set_len(header.total_bytes).unwrap();
    file.write_all_at(&header.bytes(), 0).unwrap();
    file
}

/// Everything up to the end of the rings.
fn bytes(file: &File, header: &RegionHeader) -> Vec<u8> {
    let mut all = vec![0; (header.rings_off + u64::from(NODES * NODES) * header.ring_bytes) as usize];
    file.read_exact_at(&mut all, 0).unwrap();
    all
}

/// The staging areas of these nodes.
fn areas(file: &File, header: &RegionHeader, nodes: Range<u16>) -> Vec<u8> {
    let mut all = vec![0; nodes.len() * STAGE_BYTES as usize];
    file.read_exact_at(&mut all, header.stage_off + u64::from(nodes.start) * STAGE_BYTES).unwrap();
    all
}

/// A batch of the host, as an honest one would send it, and how many bytes go with it.
fn honest(host: usize, number: u64, random: &mut Random) -> (Vec<u8>, usize) {
    let mut batch = BatchWriter::new(Vec::new(), &SECRET, host as u16, number);
    let pair =
        |random: &mut Random| Pair { from: HOSTS[host].start + random.below(2) as u16, to: random.below(2) as u16 };
    if random.below(3) == 0 {
        let Pair { from, to } = pair(random);
        batch.receipt(Receipt { pair: Pair { from: to, to: from }, arrived: 0 });
    }
    for _ in 0..random.below(3) {
        let word = random.below(1 << 40) as u64;
        let length = 64 * (random.below(2) as u8);
        let (handler, source) = (word as u16, random.below(6) as u16);
        let (incarnation, taken) = (random.below(9) as u32, word as u32);
        let data = if length == 0 { [0; 8] } else { [word; 8] };
        let message =
            Message { incarnation, handler, source, length, taken, addr: word, args: [word; 3], key: word, data };
        let _ = batch.message(pair(random), &message);
    }
    // Pieces of bulk data and of what a flush pushes, at any place.
    let (from, place) = (pair(random), random.below(1 << 20) as u64);
    for step in 0..random.below(4) as u64 {
        let last = [STAGE_PIECE_BYTES, 1 + random.below(STAGE_PIECE_BYTES as usize) as u64][random.below(2)];
        let (handler, args) = match random.below(8) {
            0 => (BLOCK_PUSHES, [place % 16 + step, 1 + place % 448, 0]),
            _ => (BULK_STAGED, [7, place + step, 1]),
        };
        let message = Message { handler, addr: last, args, ..Message::default() };
        if !batch.has_room() || !batch.message(from, &message) {
            break;
        }
    }
    if random.below(4) == 0 {
        batch.say(&mut (0..random.below(100) as u8).collect());
    }
    let (bytes, area) = batch.finish();
    (bytes, area.map_or(0, |area| area.bytes()))
}

/// Something wrong with a batch; now and then nothing.
fn damaged(mut batch: Vec<u8>, random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => {}
        1 => batch.truncate(random.below(batch.len())),
        2 => batch.extend(std::iter::repeat_n(0xa5, 1 + random.below(2 * MESSAGE_BYTES))),
        // Longer than any that is sent: by another way of the network's.
        3 if random.below(20) == 0 => batch.resize(BATCH_BYTES * (1 + random.below(40)), 0x5a),
        4 => batch = (0..random.below(200)).map(|_| random.below(256) as u8).collect(),
        // Other hosts and nodes, numbers out of turn, counts that do not fit.
        5 => {
            let at = 16 + random.below(batch.len() - 16).min(31);
            batch[at] = random.below(8) as u8;
        }
        6 => batch[random.below(SECRET_BYTES)] ^= 1,
        _ => {
            for _ in 0..=random.below(4) {
                let at = random.below(batch.len());
                batch[at] = random.below(256) as u8;
            }
        }
    }
    batch
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

fn rubbish_reaches_nobody() {
    need_file("/usr/lib/x86_64-linux-gnu/libucp.so.0", "libucx0");
    let mut header = RegionHeader::new(NODES, 1, 1 << 30, 77);
    header.protocol = 1;
    header.peer_timeout_ms = 0;
    let file = region(&header);
    let (tell, events) = mpsc::channel();
    let plan = CarrierPlan {
        region: file.as_raw_fd(),
        hosts: HOSTS.to_vec(),
        me: 0,
        secret: SECRET,
        processors: 1,
        unbound: false,
        interrupts: false,
    };
    let carrier = Carrier::start(plan, move |event| drop(tell.send(event))).unwrap();
    let mut workers = [1, 2].map(|_| Worker::new(Library::load().unwrap(), 1).unwrap());
    let peers = [0, 1].map(|w: usize| workers[w].connect(&carrier.address).unwrap());
    carrier.connect(vec![Vec::new(), workers[0].address().unwrap(), workers[1].address().unwrap()]);
    let mut random = Random(0x5eed_0f27);
    for w in 0..2 {
        let (first, _) = BatchWriter::new(Vec::new(), &SECRET, w as u16 + 1, 0).finish();
        workers[w].send(peers[w], first).unwrap();
    }
    let progress = |workers: &mut [Worker; 2]| {
        for worker in workers {
            worker.progress();
            while worker.receive().is_some() {}
        }
    };
    until(|| {
        progress(&mut workers);
        events.try_recv().is_ok_and(|event| event == CarrierEvent::Connected)
    });

    let before = bytes(&file, &header);
    let theirs = HOSTS[2].clone();
    let others_before = areas(&file, &header, 0..theirs.start);
    // What goes with batches: UCX reads it for as long as it likes.
    let more: &'static [u8] = Box::leak(vec![0xc3; 8 * STAGE_PIECE_BYTES as usize].into_boxed_slice());
    // How many of its batches have been taken, as the host under attack counts them.
    let mut taken = 1;
    for round in 0..BATCHES {
        let (batch, with_it) = honest(2, taken, &mut random);
        let with_it = if random.below(8) == 0 { random.below(more.len()) } else { with_it };
        let batch = if round % 16 == 0 { batch } else { damaged(batch, &mut random) };
        let expected = Expected { secret: &SECRET, hosts: &HOSTS, me: 0, received: &[0, 1, taken] };
        match Batch::read(&batch, with_it, &expected).map(|batch| batch.host) {
            // Whoever has the secret can say that it is another host, which this one would then not hear any more.
            Ok(1) => continue,
            // Longer ones come another way, and are not looked at.
            Ok(_) if batch.len() <= if with_it == 0 { BATCH_BYTES } else { HEAD_BYTES } => taken += 1,
            _ => {}
        }
        if with_it == 0 {
            workers[1].send(peers[1], batch).unwrap();
        } else if batch.len() <= HEAD_BYTES {
            // SAFETY: the bytes are never given back.
            unsafe { workers[1].send_with(peers[1], batch, (more.as_ptr(), with_it)) }.unwrap();
        }
        until(|| {
            progress(&mut workers);
            workers[1].unsent(peers[1]) < 8
        });
    }
    // The honest host is served behind all that.
    let mut batch = BatchWriter::new(Vec::new(), &SECRET, 1, 1);
    let message = Message { incarnation: 77, handler: 1, source: 2, key: 0xfeed, ..Message::default() };
    assert!(batch.message(Pair { from: 2, to: 1 }, &message));
    batch.say(&mut (*b"hello").into());
    workers[0].send(peers[0], batch.finish().0).unwrap();
    let ring = |from: u64, to: u64| {
        let start = (header.rings_off + (from * u64::from(NODES) + to) * header.ring_bytes) as usize;
        start..start + header.ring_bytes as usize
    };
    until(|| {
        progress(&mut workers);
        bytes(&file, &header)[ring(2, 1)] != before[ring(2, 1)]
    });
    until(|| {
        progress(&mut workers);
        workers[1].unsent(peers[1]) == 0
    });
    let counts = carrier.stop();

    let mut after = bytes(&file, &header);
    let contexts = header.contexts_off as usize..(header.contexts_off + u64::from(NODES) * CONTEXT_BYTES) as usize;
    let open = [ring(2, 1), ring(4, 0), ring(4, 1), ring(5, 0), ring(5, 1), contexts];
    let has_written = open.iter().filter(|range| after[(*range).clone()] != before[(*range).clone()]).count();
    assert!(has_written >= 3, "the rubbish was all refused, and tests nothing");
    for range in open {
        after[range.clone()].copy_from_slice(&before[range]);
    }
    assert!(after == before, "something else was written to");
    assert!(areas(&file, &header, 0..theirs.start) == others_before, "the area of another host's node was written to");
    assert!(areas(&file, &header, theirs).contains(&0xc3), "nothing went with the batches");
    let said = events.try_iter().filter_map(|event| match event {
        CarrierEvent::Said { host, bytes } => Some((host, bytes)),
        _ => None,
    });
    let (honest, rubbish): (Vec<_>, Vec<_>) = said.partition(|(host, _)| *host == 1);
    assert!(honest == [(1, b"hello".to_vec())] && !rubbish.is_empty(), "{honest:?} {}", rubbish.len());
    assert!(counts.refused.iter().take(4).all(|&count| count > 0), "{counts:?}");
    assert_eq!(counts.batches_received, 2 + taken, "{counts:?}");
}
