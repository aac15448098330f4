use super::*;

#[test]
fn memory_and_open_files_are_read_from_the_files_of_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("status", "Name:\tbasestream\nVmPeak:\t  900000 kB\nVmRSS:\t    2048 kB\nThreads:\t7\n");
    write(
        "limits",
        "Limit                     Soft Limit   Hard Limit   Units\nMax open files            1024         524288       files\n",
    );
    std::fs::create_dir(folder.path().join("fd")).unwrap();
    for name in ["fd/0", "fd/1", "fd/2"] {
        write(name, "");
    }
    let expected = ProcessUsage { resident_bytes: Some(2 << 20), open_fds: Some(3), max_fds: Some(1024) };
    assert_eq!(ProcessUsage::read(folder.path()), expected);
}

#[test]
fn what_the_system_does_not_say_has_no_value() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(ProcessUsage::read(folder.path()), ProcessUsage { resident_bytes: None, open_fds: None, max_fds: None });
    std::fs::write(folder.path().join("status"), "VmRSS: a lot\n").unwrap();
    std::fs::write(folder.path().join("limits"), "Max open files   unlimited   unlimited   files\n").unwrap();
    assert_eq!(ProcessUsage::read(folder.path()), ProcessUsage { resident_bytes: None, open_fds: None, max_fds: None });
}
