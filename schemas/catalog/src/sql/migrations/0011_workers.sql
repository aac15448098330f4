-- The processes whose workers offer their fresh layers to nodes of other processes, and where. An epoch is a revision: it
-- grows with every partition that one of them takes over.
CREATE TABLE worker (
    name       TEXT   NOT NULL PRIMARY KEY,
    address    TEXT   NOT NULL,
    epoch      BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
