-- The values of parameters: a row each time that one was set. The newest of a live parameter is in effect.
CREATE TABLE parameter_value (
    parameter  TEXT   NOT NULL,
    -- Consecutive for each parameter, from 1 on.
    version    BIGINT NOT NULL,
    value_type TEXT   NOT NULL,
    value      TEXT   NOT NULL,
    set_at     BIGINT NOT NULL,
    set_by     TEXT   NOT NULL,
    PRIMARY KEY (parameter, version)
);
