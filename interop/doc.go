// Package interop holds no code, only tests: they start real processes, tandem's and Apache RocketMQ's, let them replicate to
// each other, let their clients and tools talk to both, break what can be broken, and compare bytes, counts and checksums.
//
// The README beside this file says what is proven, what a machine needs for it, and how to run one test.
package interop
