//! What the published reports did, as far as they say it: for the reader who has not got them.

/// The test that a suite reruns, as it was run then; empty for a suite that no report has.
pub fn then(suite: &str) -> &'static str {
    match suite {
        "readhit" => {
            "VeloBit ran vdbench on an array with a cache of its own: 16 KiB, 32 threads, a share of the reads in the first MiB and no write ever in it. \
             The rates rose 5.3, 61.1, 13.1 and 9.0 times (RD1 to RD4); the hits of RD2 came from the memory of the host. RD6 was run in a virtual \
             machine and is shown in a chart without numbers."
        }
        "hotspot" => {
            "FlashSoft ran fio with 4 KiB, 80 % reads and 80 % of the I/O in 10 GB of 100 GB, at queue depth 2 × 32, on disks behind an array, with a cache of \
             30 GB: three warming passes of 1,200 s, then a ramp and a run of 1,200 s each. Write-through doubled the rate and halved the response; \
             write-back came to nearly five times the rate with 80 % less response."
        }
        "depth" => {
            "EMC ran fio with 8 KiB, 70 % reads, at queue depths from 1 to 256 and 60, 80 and 100 % hits against no cache. Rates rose and responses fell \
             with the hit rate at every depth; the report promises less than 100 µs for a hit."
        }
        "database-skew" => {
            "PrimaryIO ran sysbench on two databases of 23 GB, a buffer pool of 3 GB and 64 threads, 90 % of the queries on 30 % of the rows, with about 20 GB \
             of cache on a local disk's machine: from 150 to 750 queries a second at 95 % hits, after 1.5 hours of watching and 12 to 24 hours in all. SQL \
             Server with 40 GB and 12 GB of cache came to four times its rate."
        }
        "oltp-live" => {
            "EMC ran TPC-C-like load on Oracle (1.2 TB, 100 users) and TPC-E-like load on SQL Server (1.3 TB, 120 users), and switched the cache on while it \
             ran, in write-through. The rate had doubled after 25 minutes and was full after 75; waits under 1 ms rose from 60 to 90 %; over all 2.5 to \
             3.5 times were reached."
        }
        "tpcc" => {
            "VeloBit ran TPC-C on MySQL with 4,200 warehouses (440 GB), 96 connections and 100 GB of cache, 100 minutes of ramp and 100 of measurement: from 430 \
             to 3,449 transactions a minute with a PCIe SSD (8.02 times), 1,012 with a SATA SSD (2.35 times), and from 391 to 1,699 in a virtual machine \
             (4.35 times)."
        }
        "many-readers" => {
            "OCZ read files by dd (64 KiB, direct) and iozone (128 KiB) from one to five virtual machines at once over a SAN link, ten rounds with best and worst \
             left out. Alone, 46.6 MB/s became 97.7; five together had 100 MB/s each, and never more than 100 in all without the cache. Traffic to the \
             SAN fell by up to 90 %. With half of the I/O writes nothing was gained."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_suite_with_headlines_has_its_story() {
        for suite in crate::catalogue::SUITES {
            assert_eq!(super::then(suite.name).is_empty(), suite.headlines.is_empty(), "{}", suite.name);
        }
    }
}
