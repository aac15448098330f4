use super::*;

fn limit_of(memory: &QueryMemory, refused: DataFusionError) -> String {
    Error::from(memory.named(refused)).fact("limit").unwrap_or_default().to_owned()
}

#[test]
fn what_is_refused_names_the_limit_that_was_reached() {
    let node: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(1_000));
    let new = || Arc::new(QueryMemory::new(600, node.clone(), 1_000));
    let reserve = |memory: &Arc<QueryMemory>| MemoryConsumer::new("rows").register(&(memory.clone() as Arc<dyn MemoryPool>));
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
fn another_error_stays_what_it_is() {
    let memory = QueryMemory::new(1, Arc::new(FairSpillPool::new(1)), 1);
    assert!(matches!(memory.named(DataFusionError::Plan("x".into())), DataFusionError::Plan(_)));
}
