// Package demo is the scripted tour behind `tandem demo`: a cluster of a name server, a master and a slave on this machine is
// sent messages, measured, robbed of its master, read from its slave, given its master back, and audited. The tour tells
// what it does as it goes and ends with a verdict of its own.
//
// The central function is [Run]. All goroutines and processes that it starts end before it returns.
package demo
