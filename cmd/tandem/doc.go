// Command tandem is the one binary: a broker, a name server, a local cluster of both, the load generator, and the tools that
// look at running brokers and at stores.
//
// Every subcommand lives in a file of its own and only reads its arguments, calls the package that does the work, and prints.
// The exit status is 0 where it holds, 1 where it does not, 2 where the command was called wrongly; see exit.go. Standard output
// carries results, standard error everything else: errors as one line each, logs, and progress (on a terminal only).
package main
