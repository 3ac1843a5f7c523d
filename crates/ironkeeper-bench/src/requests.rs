//! The requests of the workloads.

use ironkeeper_proto::reply::MultiHeader;
use ironkeeper_proto::{OpCode, Put};

use super::reply_scanner::Reply;
use super::template::{Layout, NODES_MAX, Template};

/// The number of kinds of requests that are counted separately.
pub(crate) const KINDS: usize = 2;

/// A stream of requests. Each thread owns one.
pub(crate) trait Source: Send {
    /// Appends the next request and returns its kind, below [`KINDS`]; `None` at the end of the
    /// stream.
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8>;

    /// Returns the error code of a reply to one of these requests; 0 is success.
    #[inline]
    fn err(reply: &Reply<'_>) -> i32 {
        reply.err
    }
}

/// getData (kind 0) and setData (kind 1) of randomly chosen nodes.
#[derive(Debug)]
pub(crate) struct Mix {
    get: Template,
    set: Template,
    nodes: u32,
    /// A request is a read if 32 random bits are below this.
    reads_below: u64,
    random: Random,
}

impl Mix {
    pub(crate) fn new(
        layout: &Layout,
        nodes: u32,
        size: u32,
        read_percent: u8,
        thread: u32,
    ) -> Mix {
        Mix {
            get: Template::get_data(layout),
            set: Template::set_data(layout, size),
            nodes,
            reads_below: (u64::from(read_percent) << 32) / 100,
            random: Random::new(u64::from(thread) + 1),
        }
    }
}

impl Source for Mix {
    #[inline]
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8> {
        let bits = self.random.next();
        let node = ((bits >> 32) * u64::from(self.nodes)) >> 32;
        let is_read = (bits & 0xffff_ffff) < self.reads_below;
        let template = if is_read { &self.get } else { &self.set };
        template.append_request(xid, node as u32, out);
        Some(u8::from(!is_read))
    }
}

/// Creates of new nodes; thread `thread` of `threads` uses every `threads`-th number.
#[derive(Debug)]
pub(crate) struct Creates {
    create: Template,
    next: u32,
    step: u32,
}

impl Creates {
    pub(crate) fn new(layout: &Layout, size: u32, thread: u32, threads: u32) -> Creates {
        Creates { create: Template::create(layout, size), next: thread, step: threads }
    }
}

impl Source for Creates {
    #[inline]
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8> {
        if self.next >= NODES_MAX {
            return None;
        }
        self.create.append_request(xid, self.next, out);
        self.next += self.step;
        Some(0)
    }
}

/// Creates of the nodes 0 to `nodes`, one per request.
#[derive(Debug)]
pub(crate) struct FillOneByOne {
    creates: Creates,
    nodes: u32,
}

impl FillOneByOne {
    pub(crate) fn new(layout: &Layout, nodes: u32, size: u32) -> FillOneByOne {
        FillOneByOne { creates: Creates::new(layout, size, 0, 1), nodes }
    }
}

impl Source for FillOneByOne {
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8> {
        if self.creates.next >= self.nodes {
            return None;
        }
        self.creates.append(xid, out)
    }
}

/// Creates of the nodes 0 to `nodes`, `batch` per multi.
#[derive(Debug)]
pub(crate) struct FillInBatches {
    create: Template,
    next: u32,
    nodes: u32,
    batch: u32,
}

impl FillInBatches {
    pub(crate) fn new(layout: &Layout, nodes: u32, size: u32, batch: u32) -> FillInBatches {
        FillInBatches { create: Template::create_in_multi(layout, size), next: 0, nodes, batch }
    }
}

impl Source for FillInBatches {
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Option<u8> {
        const AROUND: usize = 8 + 9;
        let batch = self.batch.min(self.nodes - self.next);
        if batch == 0 {
            return None;
        }
        out.put_len(AROUND + batch as usize * self.create.len());
        out.put_i32(xid);
        out.put_i32(OpCode::Multi.code());
        for node in self.next..self.next + batch {
            self.create.append(node, out);
        }
        MultiHeader::END.encode(out);
        self.next += batch;
        Some(0)
    }

    fn err(reply: &Reply<'_>) -> i32 {
        reply.multi_err()
    }
}

/// A pseudo-random sequence, the same in every run, so that the server sees no access pattern.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number: xorshift, multiplied to improve the high bits.
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::request::RequestHeader;
    use ironkeeper_proto::{Reader, Request};

    fn frames(bytes: &[u8]) -> Vec<(i32, Request<'_>)> {
        let mut reader = Reader::new(bytes);
        let mut frames = Vec::new();
        while !reader.is_empty() {
            let mut frame = Reader::new(reader.buf().unwrap().unwrap());
            let header = RequestHeader::decode(&mut frame).unwrap();
            let op = OpCode::from_code(header.op).unwrap();
            frames.push((header.xid.0, Request::decode(op, frame).unwrap()));
        }
        frames
    }

    fn shares(read_percent: u8) -> (usize, usize) {
        let mut source = Mix::new(&Layout::over("/b", 10), 10, 1, read_percent, 0);
        let kinds: Vec<u8> =
            (0..10_000).map(|xid| source.append(xid, &mut Vec::new()).unwrap()).collect();
        let writes = kinds.iter().filter(|kind| **kind == 1).count();
        (kinds.len() - writes, writes)
    }

    #[test]
    fn a_mix_has_the_share_of_reads_it_was_told() {
        assert_eq!(shares(100), (10_000, 0));
        assert_eq!(shares(0), (0, 10_000));
        let (_, writes) = shares(90);
        assert!((900..1100).contains(&writes), "{writes} writes of 10,000");
    }

    #[test]
    fn a_mix_touches_every_node_and_no_other() {
        let mut source = Mix::new(&Layout::over("/b", 7), 7, 1, 100, 0);
        let mut out = Vec::new();
        (0..1000).for_each(|xid| assert!(source.append(xid, &mut out).is_some()));
        let mut paths: Vec<String> = frames(&out)
            .into_iter()
            .map(|(_, request)| match request {
                Request::GetData { path, .. } => path.into_owned(),
                other => panic!("not a read: {other:?}"),
            })
            .collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths, (0..7).map(|node| format!("/b/{node:08}")).collect::<Vec<_>>());
    }

    #[test]
    fn batches_are_multis_that_cover_every_node_once() {
        let layout = Layout::over("/b", 10);
        let mut source = FillInBatches::new(&layout, 10, 5, 4);
        let mut out = Vec::new();
        let mut xid = 0;
        while source.append(xid, &mut out).is_some() {
            xid += 1;
        }
        let mut node = 0;
        for (at, (xid, request)) in frames(&out).into_iter().enumerate() {
            assert_eq!(xid, at as i32);
            let Request::Multi(creates) = request else { panic!("not a multi") };
            for create in creates {
                let Request::Create(create) = create else { panic!("not a create") };
                assert_eq!(create.path, layout.path(node));
                node += 1;
            }
        }
        assert_eq!((node, xid), (10, 3));
    }

    #[test]
    fn threads_create_different_nodes() {
        let layout = Layout::flat("/b");
        let mut out = Vec::new();
        for thread in 0..3 {
            let mut source = Creates::new(&layout, 1, thread, 3);
            (0..5).for_each(|xid| assert!(source.append(xid, &mut out).is_some()));
        }
        let mut paths: Vec<String> = frames(&out)
            .into_iter()
            .map(|(_, request)| match request {
                Request::Create(create) => create.path.into_owned(),
                other => panic!("not a create: {other:?}"),
            })
            .collect();
        paths.sort();
        assert_eq!(paths, (0..15).map(|node| layout.path(node)).collect::<Vec<_>>());
    }
}
