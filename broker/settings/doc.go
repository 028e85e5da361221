// Package settings is the configuration of a broker: one table describes every setting, and the flags, the help text,
// the file's checks, the documentation and what administrators are shown all come from it.
//
// A setting has one name everywhere: RocketMQ's own key, or where RocketMQ has none a new key in the same style. [Load]
// reads a broker.conf, which is a Java properties file, and lays flags over it; [Settings] holds the values in force.
// What nobody knows or can't be meant stops the start with an [Error] that names key, value, file and line. A setting
// that RocketMQ has and tandem has not is named in one [Warning], except where ignoring it would change what is safe or
// how the store is written: that stops the start too.
//
// The page docs/settings.md is made from the table; a test holds it up to date.
//
// Nothing here starts goroutines. A [Settings] is a plain value and has no lock: read it from anywhere, change it only
// where nobody else reads it.
package settings

//go:generate go test -run TestDocumentationIsMadeFromTheTable . -update
