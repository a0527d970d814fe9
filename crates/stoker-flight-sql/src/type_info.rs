//! What this server answers to `GetXdbcTypeInfo`: the types of columns, by their names in CAST.

use arrow_flight::sql::metadata::{XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder};
use arrow_flight::sql::{Nullable, Searchable, XdbcDataType, XdbcDatetimeSubcode};

use crate::{Error, Result};

/// Returns the types.
///
/// # Errors
/// `Internal` if the types do not make a batch.
pub(crate) fn type_info() -> Result<XdbcTypeInfoData> {
    let mut types = XdbcTypeInfoDataBuilder::new();
    for info in all() {
        types.append(info);
    }
    types.build().map_err(Error::internal)
}

fn all() -> Vec<XdbcTypeInfo> {
    let base = |name: &str, data_type: XdbcDataType, size: i32| XdbcTypeInfo {
        type_name: name.to_string(),
        data_type,
        sql_data_type: data_type,
        column_size: Some(size),
        nullable: Nullable::NullabilityNullable,
        searchable: Searchable::Full,
        ..XdbcTypeInfo::default()
    };
    let integer = |name: &str, data_type, bits, is_unsigned| XdbcTypeInfo {
        unsigned_attribute: Some(is_unsigned),
        auto_increment: Some(false),
        num_prec_radix: Some(2),
        minimum_scale: Some(0),
        maximum_scale: Some(0),
        ..base(name, data_type, bits)
    };
    let real = |name: &str, data_type, bits| XdbcTypeInfo {
        unsigned_attribute: Some(false),
        auto_increment: Some(false),
        num_prec_radix: Some(2),
        ..base(name, data_type, bits)
    };
    let quoted = |info: XdbcTypeInfo| XdbcTypeInfo {
        literal_prefix: Some("'".into()),
        literal_suffix: Some("'".into()),
        ..info
    };
    let time = |name: &str, data_type, size, subcode| {
        let sql_data_type = XdbcDataType::XdbcDatetime;
        quoted(XdbcTypeInfo { sql_data_type, datetime_subcode: Some(subcode), ..base(name, data_type, size) })
    };
    vec![
        base("BOOLEAN", XdbcDataType::XdbcBit, 1),
        integer("TINYINT", XdbcDataType::XdbcTinyint, 8, false),
        integer("SMALLINT", XdbcDataType::XdbcSmallint, 16, false),
        integer("INTEGER", XdbcDataType::XdbcInteger, 32, false),
        integer("BIGINT", XdbcDataType::XdbcBigint, 64, false),
        integer("TINYINT UNSIGNED", XdbcDataType::XdbcTinyint, 8, true),
        integer("SMALLINT UNSIGNED", XdbcDataType::XdbcSmallint, 16, true),
        integer("INTEGER UNSIGNED", XdbcDataType::XdbcInteger, 32, true),
        integer("BIGINT UNSIGNED", XdbcDataType::XdbcBigint, 64, true),
        real("REAL", XdbcDataType::XdbcReal, 24),
        real("DOUBLE", XdbcDataType::XdbcDouble, 53),
        XdbcTypeInfo {
            create_params: Some(vec!["precision".into(), "scale".into()]),
            unsigned_attribute: Some(false),
            fixed_prec_scale: true,
            num_prec_radix: Some(10),
            minimum_scale: Some(0),
            maximum_scale: Some(76),
            ..base("DECIMAL", XdbcDataType::XdbcDecimal, 76)
        },
        XdbcTypeInfo { case_sensitive: true, ..quoted(base("VARCHAR", XdbcDataType::XdbcVarchar, i32::MAX)) },
        XdbcTypeInfo {
            literal_prefix: Some("X'".into()),
            literal_suffix: Some("'".into()),
            ..base("BYTEA", XdbcDataType::XdbcVarbinary, i32::MAX)
        },
        // A date has the code of a year.
        time("DATE", XdbcDataType::XdbcDate, 10, XdbcDatetimeSubcode::XdbcSubcodeYear),
        time("TIME", XdbcDataType::XdbcTime, 18, XdbcDatetimeSubcode::XdbcSubcodeTime),
        time("TIMESTAMP", XdbcDataType::XdbcTimestamp, 29, XdbcDatetimeSubcode::XdbcSubcodeTimestamp),
    ]
}
