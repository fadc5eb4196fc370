# client.pl COLLECTION URI…: as node/client.js, with Perl's MongoDB.
use strict;
use warnings;
use MongoDB;

sub use_driver {
    my ($uri, $name, $done) = @_;
    my $client = MongoDB->connect($uri);
    my $db = $client->get_database("shop");
    my $things = $db->get_collection($name);
    $db->run_command([ buildInfo => 1 ]);
    push @$done, "connect";
    $things->insert_many([ map { { _id => $_, a => $_ % 5 } } 0 .. 249 ]);
    push @$done, "insert";
    my @found = $things->find({}, { batchSize => 50 })->all;
    @found == 250 or die "not all found";
    push @$done, "find";
    my $cursor = $things->find({}, { batchSize => 10 });
    $cursor->next;
    undef $cursor;
    push @$done, "close";
    $things->update_many({ a => 1 }, { '$set' => { b => 1 } });
    my @updated = $things->find({ b => 1 })->all;
    @updated == 50 or die "not all updated";
    push @$done, "update";
    my @groups = $things->aggregate([ { '$group' => { _id => '$a', n => { '$sum' => 1 } } } ])->all;
    @groups == 5 or die "not all groups";
    push @$done, "aggregate";
    eval { $things->insert_one({ _id => 1 }); 1 } and die "no error for a duplicate key";
    ref $@ and $@->isa("MongoDB::DuplicateKeyError") or die $@;
    push @$done, "duplicate";
    $things->indexes->create_one([ a => 1 ]);
    $things->delete_many({ a => 1 });
    $things->drop;
    push @$done, "drop";
}

my ($name, @uris) = @ARGV;
for my $uri (@uris) {
    my @done;
    my $error = "";
    eval { use_driver($uri, $name, \@done); 1 } or $error = "$@";
    $error =~ s/\s+/ /g;
    print "@done: $error\n";
}
