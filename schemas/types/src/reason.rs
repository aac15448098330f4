//! The exact reasons of errors for which a protocol has a code.

/// Why a call failed, in more detail than its [`ErrorKind`](crate::ErrorKind). It is set where the error is made, and
/// becomes an SQLSTATE or a gRPC code at the edge, whatever the message says. The edges match it exhaustively: a new
/// one does not compile until each has its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The text cannot be parsed.
    SqlNotUnderstood,
    /// The text has no query, or several.
    NotOneQuery,
    /// The statement is of another kind than a query.
    NotAQuery,
    /// A query would write or lock something.
    WritesWithinQuery,
    /// The SQL has a part that queries may not have.
    NotSupported,
    /// No column has the name.
    UnknownColumn,
    /// Several columns have the name.
    AmbiguousColumn,
    /// Two columns of one result have the same name.
    RepeatedColumn,
    /// A column is neither in GROUP BY nor inside an aggregate, or an aggregate is where none may be.
    UngroupedColumn,
    /// ORDER BY or GROUP BY names a column of the SELECT that is not there.
    InvalidColumnReference,
    /// No table, stream or view has the name.
    UnknownTable,
    /// No function has the name.
    UnknownFunction,
    /// The query names a parameter that has no value.
    UnknownParameter,
    /// The time that a query names is not a time.
    InvalidAsOf,
    /// A LIMIT is negative, for example.
    InvalidLimit,
    /// The same for an OFFSET.
    InvalidOffset,
    /// A number is divided by zero.
    DivisionByZero,
    /// A number does not fit its type.
    NumberTooLarge,
    /// The square root of a negative number, or another power that is not defined.
    InvalidPower,
    /// A text is not a value of the type that it is cast to.
    InvalidText,
    /// A text is not a timestamp or an interval.
    InvalidTime,
    /// A date or a time does not fit its type.
    TimeOutOfRange,
    /// No time zone has the name.
    UnknownTimeZone,
    /// A local time that its zone has twice or not at all.
    AmbiguousLocalTime,
    /// A regular expression cannot be compiled.
    InvalidPattern,
    /// A text is not UTF-8.
    NotUtf8,
    /// An answer has more columns than a message can have.
    TooManyColumns,
    /// A query's time is over.
    OutOfTime,
    /// The client has cancelled the query.
    Cancelled,
}
