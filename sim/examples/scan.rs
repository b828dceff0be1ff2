use hetccl_sim::{cluster::Cluster, study::Study};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let c = Cluster::load(a[1].as_ref()).unwrap();
    let coll = hetccl_core::Collective::ALL.into_iter().find(|c| c.name() == a[2]).unwrap();
    let s = Study::new(c, coll);
    let bytes: u64 = a[3].parse::<u64>().unwrap() << 20;
    let count = s.count(bytes);
    for name in a[4].split(',') {
        for chunk in a[5].split(',') {
            let kib: usize = chunk.parse().unwrap();
            let ck = if kib == 0 { usize::MAX } else { (kib << 10) / 4 };
            let t0 = std::time::Instant::now();
            let t = s.time(name, ck, count, |_| ());
            println!(
                "{name} chunk {kib} KiB: {:.1} us, {} events, {:.1?}",
                t.us(),
                t.events,
                t0.elapsed()
            );
        }
    }
    println!("choice {:?}", s.choice(count));
}
