def sub(p, a, b, n=1):
    s=open(p).read()
    assert a in s, (p,a)
    open(p,'w').write(s.replace(a,b,n))
p='tests/contracts/ledger_contract.py'
sub(p,"from contracts.ledger_redrives_contract","from contracts.ledger_queues_contract import QueuesContract\nfrom contracts.ledger_redrives_contract")
sub(p,"    PendingContract,\n","    PendingContract,\n    QueuesContract,\n")
