// Package pressureconfig reads the NodePressureConfiguration at start, and again after each change of the file, and
// passes it to the parts that are configured by it.
//
//	decode   strict decoding: an error has the path and line of every unknown, duplicate or mistyped field
//	load     one file → configuration, defaulted and validated
//	reload   applies a changed file
//	watch    notifications of changes
//	metrics  which configuration is in force, and whether the last load failed
package pressureconfig
