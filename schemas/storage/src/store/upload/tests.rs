use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use object_store::{MultipartUpload, PutPayload, PutResult, UploadPart};

use super::parts::PART_BYTES;
use super::*;
use crate::store::refusing::{Refused, RefusingStore};

/// What a bucket does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// It refuses a part, counted from 1.
    Part(usize),
    /// It refuses to complete the upload.
    Complete,
    /// It never answers to that.
    Silence,
}

/// What a bucket was asked for.
#[derive(Debug, Default)]
struct Asked {
    part_bytes: Vec<usize>,
    completions: usize,
    aborts: usize,
}

#[derive(Debug)]
struct FaultyUpload {
    fault: Fault,
    asked: Arc<Mutex<Asked>>,
}

impl FaultyUpload {
    fn outcome(&self, step: Fault) -> object_store::Result<()> {
        match self.fault == step {
            true => Err(object_store::Error::Generic { store: "faulty", source: "refused".into() }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.part_bytes.push(data.content_length());
            asked.part_bytes.len()
        };
        std::future::ready(self.outcome(Fault::Part(number))).boxed()
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        self.asked.lock().unwrap().completions += 1;
        if self.fault == Fault::Silence {
            std::future::pending::<()>().await;
        }
        self.outcome(Fault::Complete).map(|()| PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.asked.lock().unwrap().aborts += 1;
        Ok(())
    }
}

/// An upload of two parts and a byte, all of it written but that byte not sent yet.
async fn written(fault: Fault) -> (UploadWriter, Arc<Mutex<Asked>>) {
    let asked = Arc::new(Mutex::new(Asked::default()));
    let target = Target::Parts(Some(PartsUpload::new(Box::new(FaultyUpload { fault, asked: asked.clone() }))));
    let storage = ObjectStorage::open("memory://").unwrap();
    let mut upload = UploadWriter { storage, path: "an/object".into(), bytes: 0, checksum: Hasher::new(), target };
    upload.write(Bytes::from(vec![1; 2 * PART_BYTES + 1])).await.unwrap();
    (upload, asked)
}

#[tokio::test]
async fn an_upload_is_aborted_whichever_step_fails() {
    for fault in [Fault::Part(1), Fault::Part(2), Fault::Part(3), Fault::Complete] {
        let (upload, asked) = written(fault).await;
        let error = upload.finish().await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{fault:?}: {error}");
        assert_eq!(asked.lock().unwrap().aborts, 1, "{fault:?}");
    }
    let (upload, asked) = written(Fault::Nothing).await;
    assert_eq!(upload.finish().await.unwrap().bytes, 2 * PART_BYTES as i64 + 1);
    tokio::task::yield_now().await;
    let asked = asked.lock().unwrap();
    assert_eq!((&asked.part_bytes[..], asked.completions, asked.aborts), (&[PART_BYTES, PART_BYTES, 1][..], 1, 0));
}

#[tokio::test]
async fn an_upload_that_is_given_up_while_it_is_completed_is_aborted() {
    let (upload, asked) = written(Fault::Silence).await;
    let finishing = tokio::spawn(upload.finish());
    until(|| asked.lock().unwrap().completions == 1).await;
    finishing.abort();
    until(|| asked.lock().unwrap().aborts == 1).await;
}

async fn until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("timed out: it does not come");
}

#[tokio::test]
async fn an_upload_whose_parts_do_not_begin_is_not_finished_without_them() {
    let storage = ObjectStorage::over(Arc::new(RefusingStore::new(Refused::Parts))).unwrap();
    let mut upload = UploadWriter::new(storage.clone(), "an/object".into()).await.unwrap();
    upload.write(Bytes::from(vec![1; MULTIPART_ABOVE_BYTES])).await.unwrap();
    let error = upload.write(Bytes::from_static(b"2")).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert!(upload.finish().await.is_err());
    assert!(storage.get("an/object").await.is_err(), "an object is there that lacks what was written");
}
