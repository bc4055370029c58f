//! Examples of Everturn, one idea a file.
