use super::*;

fn limit_of(memory: &QueryMemory, refused: DataFusionError) -> String {
    Error::from(memory.named(refused)).fact("limit").unwrap_or_default().to_owned()
}

fn reserve(memory: &Arc<QueryMemory>) -> MemoryReservation {
    MemoryConsumer::new("rows").register(&(memory.clone() as Arc<dyn MemoryPool>))
}

/// The memory of a node, of 1,000 bytes.
fn of_node(pool: &Arc<dyn MemoryPool>) -> MemoryLevel {
    MemoryLevel::new(MemoryScope::Node, 1_000, pool.clone())
}

#[test]
fn what_is_refused_names_the_limit_that_was_reached() {
    let node: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1_000));
    let new = || Arc::new(QueryMemory::new(600, [of_node(&node)]));
    let (one, other) = (new(), new());
    let (of_one, of_other) = (reserve(&one), reserve(&other));
    of_one.try_grow(600).unwrap();
    assert_eq!(limit_of(&one, of_one.try_grow(1).unwrap_err()), "serving.limits.query_memory");
    of_other.try_grow(400).unwrap();
    assert_eq!(limit_of(&other, of_other.try_grow(1).unwrap_err()), "serving.memory_limit");
    assert_eq!((one.reserved(), other.reserved(), node.reserved()), (600, 400, 1_000), "what was refused is not counted");
    drop(of_one);
    of_other.try_grow(200).unwrap();
    assert_eq!(node.reserved(), 600);
}

#[test]
fn the_queries_of_a_principal_share_its_memory_and_leave_the_rest_to_others() {
    let node: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1_000));
    let principals = PrincipalMemory::new(500);
    let query_of = |name: &str| Arc::new(QueryMemory::new(450, [principals.level(&name.into()), of_node(&node)]));
    let (first, second, other) = (query_of("a"), query_of("a"), query_of("b"));
    let (of_first, of_second, of_other) = (reserve(&first), reserve(&second), reserve(&other));
    of_first.try_grow(400).unwrap();
    of_second.try_grow(100).unwrap();
    assert_eq!(limit_of(&second, of_second.try_grow(1).unwrap_err()), "serving.limits.memory_per_principal");
    of_other.try_grow(450).unwrap();
    assert_eq!(limit_of(&other, of_other.try_grow(1).unwrap_err()), "serving.limits.query_memory");
    assert_eq!((second.reserved(), node.reserved()), (100, 950), "what was refused is not counted");
    drop(of_first);
    of_second.try_grow(300).unwrap();
    drop((of_second, of_other));
    drop((first, second, other));
    let _next = query_of("c");
    assert_eq!(principals.pools.lock().unwrap().len(), 1, "nothing is kept of principals without queries");
}

#[test]
fn another_error_stays_what_it_is() {
    let memory = QueryMemory::new(1, []);
    assert!(matches!(memory.named(DataFusionError::Plan("x".into())), DataFusionError::Plan(_)));
}
