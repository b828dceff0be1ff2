//! Heterogeneous algorithms on named groups: one node each, one node for all, nodes of one rank.

use std::sync::Arc;

use hetccl_core::algorithms::ALGORITHMS;
use hetccl_core::topology::{Hierarchy, Place, Topology, Vendor};
use hetccl_core::verify::cases::{self, Variant};
use hetccl_core::{Call, verify};

/// Groups of these sizes, vendors in turn; all in one node, or `per_node` ranks of a group on each.
fn groups(sizes: &[usize], per_node: Option<usize>) -> Topology {
    let mut topology = cases::machine(1, 0);
    let mut kind = topology.kinds[0].clone();
    let vendors = [Vendor::Nvidia, Vendor::Amd, Vendor::Host];
    kind.devices = (0..3)
        .flat_map(|v| std::iter::repeat_n(vendors[v], 8))
        .map(|vendor| hetccl_core::topology::Device { vendor, ..kind.devices[0] })
        .collect();
    topology.kinds = vec![kind];
    (topology.nodes, topology.places) = (vec![0], Vec::new());
    for (group, &size) in sizes.iter().enumerate() {
        for member in 0..size {
            if let Some(per_node) = per_node
                && member % per_node == 0
                && !topology.places.is_empty()
            {
                topology.nodes.push(0);
            }
            let node = topology.nodes.len() as u32 - 1;
            let device = group * 8 + per_node.map_or(member, |per_node| member % per_node);
            topology.places.push(Place { node, device: device as u16 });
        }
    }
    topology.validate().unwrap();
    topology
}

#[test]
fn named_groups_get_right_results() {
    let mut checked = 0;
    for sizes in [&[1, 1][..], &[2, 1], &[3, 2], &[4, 4], &[2, 2, 2], &[8, 4], &[8, 2, 6]] {
        for per_node in [None, Some(1), Some(2), Some(4), Some(8)] {
            let hierarchy = Hierarchy::new(groups(sizes, per_node));
            let hierarchy = Arc::new(hierarchy.with_libraries(&[Vendor::Nvidia, Vendor::Amd]));
            let size = hierarchy.topology().len();
            for algorithm in ALGORITHMS.iter().filter(|a| a.name.starts_with("hetero")) {
                for &collective in algorithm.collectives {
                    for (count, chunk) in [(1, usize::MAX), (61, 3), (size + 1, 7)] {
                        for in_place in [false, true] {
                            let variant = Variant {
                                chunk,
                                in_place,
                                root: size - 1,
                                ..Variant::plain(count)
                            };
                            let calls: Vec<Call> = cases::intra(collective, size, &variant)
                                .into_iter()
                                .map(|call| Call { topology: Some(Arc::clone(&hierarchy)), ..call })
                                .collect();
                            if !calls.iter().all(|call| algorithm.can_do(call)) {
                                // Without a vendor of two ranks there is nothing for its library to do.
                                assert!(algorithm.name == "hetero_library" && size <= 2);
                                continue;
                            }
                            verify::check(algorithm, &calls)
                                .unwrap_or_else(|v| panic!("{sizes:?} {per_node:?}: {v}"));
                            checked += 1;
                        }
                    }
                }
            }
        }
    }
    println!("verified {checked} cases");
    assert!(checked > 0);
}
