// Package tables holds what a broker knows besides messages: its topics, its
// consumer groups, how far each group has consumed, and how far delayed
// delivery has come. These are the four tables a slave copies from its master.
//
// The types are [Topics], [Groups], [Offsets] and [DelayOffsets]. They depend
// on nothing but package codec and on each other not at all. Each one lives in
// memory first: a change is visible at once and marks the table dirty, and
// Persist later writes the whole table to its file in the config directory if
// it is dirty, else does nothing. [Files] knows how such a file is written so
// that a crash leaves either the old or the new one, and how a damaged one is
// told from an empty one. The files are those of Apache RocketMQ, in both
// directions: topics.json, subscriptionGroup.json, consumerOffset.json and
// delayOffset.json, each with its previous version beside it as .bak.
//
// # Goroutines and locks
//
// The package starts no goroutine and holds no timer; the broker decides when
// to persist. Every method is safe from any goroutine, except that Load
// belongs to the start, before anyone else uses the table. Reads of Topics and
// Groups take no lock and never see a name missing while a sync from the
// master is being applied. Commits to Offsets lock one of a few shards for the
// length of two map look-ups. Persist does its I/O outside every lock that a
// reader or a commit takes; two Persists of one table wait for each other.
//
// Values handed out ([codec.TopicConfig], [codec.SubscriptionGroup]) share
// their Attributes maps with the table: read them, never write to them.
// Snapshots are the caller's own, down to their top-level maps.
package tables
